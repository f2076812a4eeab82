// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// slowly is the duration of a slow call.
const slowly = 28 * time.Second

// office is a BackgroundCalls with a log of its calls.
type office struct {
	*BackgroundCalls
	*testing.T
	start time.Time
	mu    sync.Mutex
	// open and most are the current and the maximum number of concurrent calls, by step.
	open, most map[types.UID]int
	// log has the events with their times since the start.
	log []string
}

// inOffice runs a test in fake time. Open calls are canceled at its end.
func inOffice(t *testing.T, test func(*office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &office{BackgroundCalls: New(clock.RealClock{}), T: t, start: time.Now(), open: map[types.UID]int{}, most: map[types.UID]int{}}
		ctx, stop := context.WithCancel(t.Context())
		o.Start(ctx, func(machine types.NamespacedName) { o.note("wake " + machine.Name) })
		test(o)
		stop()
		synctest.Wait()
		if len(o.queues) != 0 || len(o.machines) != 0 {
			t.Errorf("the end is not the end: %v, %v", o.queues, o.machines)
		}
	})
}

func (o *office) note(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = append(o.log, fmt.Sprintf("%v %s", time.Since(o.start), what))
}

// startCall starts a slow call that responds with done.
func (o *office) startCall(machine, step string, takes time.Duration) {
	key := types.NamespacedName{Name: machine}
	o.StartCall(o.Context(), key, question(machine, step), 1, o.takes(machine, step, takes))
}

func (o *office) takes(machine, step string, takes time.Duration) func(context.Context) Response {
	return func(ctx context.Context) Response {
		o.mu.Lock()
		s := types.UID(step)
		o.open[s]++
		o.most[s] = max(o.most[s], o.open[s])
		o.mu.Unlock()
		defer func() { o.mu.Lock(); defer o.mu.Unlock(); o.open[s]-- }()
		o.note(step + " hears of " + machine)
		select {
		case <-ctx.Done():
			o.note(step + " is cancelled for " + machine)
			return Response{Err: ctx.Err()}
		case <-time.After(takes):
			return Response{Message: machine}
		}
	}
}

func (o *office) want(log ...string) {
	o.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if diff := cmp.Diff(log, o.log); diff != "" {
		o.Errorf("-want, +got:\n%s", diff)
	}
	o.log = nil
}

func (o *office) wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func question(machine, step string) CallKey {
	return CallKey{Machine: types.UID(machine), Step: types.UID(step), Phase: "first"}
}

func TestASlowStepDelaysNoOtherStep(t *testing.T) {
	inOffice(t, func(o *office) {
		const machines = 1000
		for i := range machines {
			o.startCall(fmt.Sprint("m", i), "slow", slowly)
		}
		synctest.Wait()
		o.log = nil
		o.startCall("box", "quick", 0)
		o.want("0s quick hears of box", "0s wake box")
		o.wait(machines / MaxConcurrentCalls * slowly)
		if got := o.most["slow"]; got != MaxConcurrentCalls {
			t.Errorf("%d calls at the same time, want %d", got, MaxConcurrentCalls)
		}
		for i := range machines {
			machine := fmt.Sprint("m", i)
			p := o.Progress(question(machine, "slow"), 1)
			if want := o.start.Add(time.Duration(i/MaxConcurrentCalls+1) * slowly); p.Open || !p.LastAnswered.Equal(want) || p.Answer.Message != machine || !p.FirstCalled.Equal(o.start) {
				t.Fatalf("%s: %+v, want an answer at %v: in line, in the order in which they came", machine, p, want)
			}
			o.ForgetMachine(types.UID(machine))
		}
	})
}

func TestAStepIsNotAskedTwiceAtOnce(t *testing.T) {
	inOffice(t, func(o *office) {
		o.startCall("box", "lb", time.Second)
		synctest.Wait()
		o.startCall("box", "lb", time.Second)
		if p := o.Progress(question("box", "lb"), 1); !p.Open || !p.LastAnswered.IsZero() {
			t.Errorf("%+v", p)
		}
		o.wait(time.Second)
		o.startCall("box", "lb", time.Second)
		if p := o.Progress(question("box", "lb"), 1); !p.Open || p.LastAnswered.IsZero() || p.Answer.Message != "box" {
			t.Errorf("what it said stands until it says something else: %+v", p)
		}
		o.want("0s lb hears of box", "1s wake box", "1s lb hears of box")
	})
}

func TestAStepThatGoesIsForgottenAtOnce(t *testing.T) {
	inOffice(t, func(o *office) {
		for i := range MaxConcurrentCalls {
			o.startCall(fmt.Sprint("m", i), "lb", slowly)
		}
		o.startCall("last", "lb", slowly)
		o.Notify(t.Context(), "lb", time.Hour, func(context.Context) { o.note("told") })
		o.startCall("box", "other", slowly)
		synctest.Wait()
		o.ForgetStep("lb")
		synctest.Wait()
		if o.open["lb"] != 0 || o.open["other"] != 1 || len(o.queues) != 1 || len(o.machines) != 1 {
			t.Errorf("open %v, queues %v, machines %d", o.open, o.queues, len(o.machines))
		}
		for _, line := range o.log {
			if line == "0s told" || line == "0s lb hears of last" {
				t.Errorf("%s: it has gone", line)
			}
		}
		if p := o.Progress(question("last", "lb"), 1); p != (Progress{}) {
			t.Errorf("%+v", p)
		}
	})
}

func TestAMachineThatGoesGivesItsPlace(t *testing.T) {
	inOffice(t, func(o *office) {
		for i := range MaxConcurrentCalls {
			o.startCall(fmt.Sprint("m", i), "lb", slowly)
		}
		o.startCall("waits", "lb", slowly)
		o.startCall("last", "lb", slowly)
		synctest.Wait()
		o.log = nil
		o.ForgetMachine("waits")
		o.want()
		o.ForgetMachine("m0")
		o.want("0s lb is cancelled for m0", "0s lb hears of last")
	})
}

func TestRetainStepsCancelsTheOthers(t *testing.T) {
	inOffice(t, func(o *office) {
		o.startCall("box", "a", time.Second)
		o.startCall("box", "b", time.Second)
		o.startCall("other", "b", 2*time.Second)
		synctest.Wait()
		o.log = nil
		o.RetainSteps("box", "first", "a")
		o.want("0s b is cancelled for box")
		o.wait(time.Second)
		o.want("1s wake box")
		o.RetainSteps("box", "second", "a")
		if p := o.Progress(question("box", "a"), 1); p != (Progress{}) {
			t.Errorf("in another phase it is asked anew: %+v", p)
		}
	})
}

func TestANewVersionIsCalledAgain(t *testing.T) {
	inOffice(t, func(o *office) {
		o.startCall("box", "lb", slowly)
		o.wait(time.Second)
		o.log = nil
		if p := o.Progress(question("box", "lb"), 2); p.Open || !p.FirstCalled.Equal(o.start) || !p.LastAnswered.IsZero() {
			t.Errorf("%+v: what the old version is asked does not matter, and since when it was asked does", p)
		}
		o.want("1s lb is cancelled for box")
		o.StartCall(t.Context(), types.NamespacedName{Name: "box"}, question("box", "lb"), 2, o.takes("box", "lb", 0))
		o.want("1s lb hears of box", "1s wake box")
	})
}

func TestNotifyCallsOnce(t *testing.T) {
	inOffice(t, func(o *office) {
		for i := range MaxConcurrentCalls - 1 {
			o.startCall(fmt.Sprint("m", i), "lb", slowly)
		}
		synctest.Wait()
		o.log = nil
		tell := func(limit time.Duration) {
			o.Notify(t.Context(), "lb", limit, func(ctx context.Context) {
				o.note(fmt.Sprint("told, ", ctx.Err()))
				<-ctx.Done()
			})
		}
		tell(time.Second)
		tell(time.Second / 2)
		o.ForgetMachine("box")
		o.want("0s told, <nil>")
		o.wait(time.Second)
		o.want("1s told, context deadline exceeded")
	})
}
