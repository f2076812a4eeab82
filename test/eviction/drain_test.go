// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
	"github.com/finos/cluster-api-addon-provider-5spot/test/operator"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

const (
	// retry is how long kubectl waits before it tries again.
	retry = 5 * time.Second
	// work is how long operators take for a pod.
	work = 3 * time.Second
)

var errNotYet = errors.New("not yet")

// stays makes a pod continue to run after its deletion.
func stays(p *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, simulation.StopAnnotation, simulation.StopNever)
}

// drain drains a Node, and returns how long it took.
func (l *lab) drain(ctx context.Context, node string) (time.Duration, error) {
	begin := time.Now()
	out, err := l.Kubectl(ctx, "drain", node, "--force", "--ignore-daemonsets", "--timeout=50s")
	l.t.Logf("draining %s: %s", node, out)
	return time.Since(begin), err
}

// settled checks that an operator has moved each pod once, and that none is on the Nodes.
func (l *lab) settled(op *operator.Operator, moved int, drained ...string) {
	l.t.Helper()
	if n := len(l.moved(op, moved)); n != moved { // kubectl may finish with a pod before its operator does.
		l.t.Errorf("the operator has moved %d pods, want %d", n, moved)
	}
	pods := &corev1.PodList{}
	l.must(l.Client.List(l.ctx(), pods, client.InNamespace(l.ns)))
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, node := range drained {
			if p.Spec.NodeName == node {
				l.t.Errorf("%s is on %s, which was drained", p.Name, node)
			}
		}
		if p.Annotations[operator.RescheduleAnnotation] != "" {
			l.t.Errorf("%s was moved, and is asked for again", p.Name)
		}
	}
}

// TestKubectlDrains runs an unmodified kubectl, which identifies pods by name, on a Node with an operator's pods and
// others.
func TestKubectlDrains(t *testing.T) {
	t.Parallel()
	for name, inPlace := range map[string]bool{"NewName": false, "SameName": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 3)
			l.policy()
			op := l.operator(func(o *operator.Options) { o.InPlace, o.Delay = inPlace, work })
			for i := range 3 {
				l.protected(fmt.Sprintf("db-%d", i), l.nodes[0])
			}
			l.run("plain", l.nodes[0], nil)
			begin := time.Now()
			took, err := l.drain(l.ctx(), l.nodes[0])
			l.must(err)
			moves := l.moved(op, 3)
			t.Logf("the drain took %s, and ended %s after its operator", took, begin.Add(took).Sub(moves[2].At))
			if took < work {
				t.Errorf("the drain took %s, and must wait for the operator", took)
			}
			if tries := l.tries("plain", begin); len(tries) != 1 || tries[0].ResponseStatus.Code != http.StatusCreated {
				t.Errorf("the plain pod must wait for nobody: %+v", tries)
			}
			for _, m := range moves {
				if n := len(l.tries(m.From.Name, m.At)); n > 2 { // The second try is for a late cache.
					t.Errorf("kubectl tried %d times to evict %s after it was moved, want twice at most", n, m.From.Name)
				}
			}
			l.settled(op, 3, l.nodes[0])
			l.wantCadence("db-0")
			// A second drain of the same Node has nothing to evict.
			begin = time.Now()
			_, err = l.drain(l.ctx(), l.nodes[0])
			l.must(err)
			if tries := l.tries("", begin); len(tries) > 0 {
				t.Errorf("a second drain evicts: %+v", tries)
			}
			l.settled(op, 3, l.nodes[0])
		})
	}
}

// tries returns kubectl's attempts to evict a pod since then, in order. An empty name is any pod of the namespace.
func (l *lab) tries(pod string, since time.Time) (tries []auditv1.Event) {
	l.t.Helper()
	events, err := l.AuditEvents()
	l.must(err)
	for _, e := range events {
		if ref := e.ObjectRef; ref != nil && ref.Namespace == l.ns && ref.Subresource == "eviction" && (pod == "" || ref.Name == pod) &&
			strings.HasPrefix(e.UserAgent, "kubectl") && e.RequestReceivedTimestamp.After(since) {
			tries = append(tries, e)
		}
	}
	return tries
}

// wantCadence checks that kubectl waits its five seconds between two tries: a Retry-After would make it retry at once.
func (l *lab) wantCadence(pod string) {
	l.t.Helper()
	tries := l.tries(pod, time.Time{})
	if len(tries) < 2 {
		l.t.Fatalf("kubectl tried %d times, want 2 at least", len(tries))
	}
	for i, e := range tries[1:] {
		if after := e.RequestReceivedTimestamp.Sub(tries[i].RequestReceivedTimestamp.Time); after < retry-200*time.Millisecond {
			l.t.Errorf("kubectl tried again after %s", after)
		}
	}
}

// TestAPodThatHasMovedInPlace counts as moved for evictions by its name, for a while.
func TestAPodThatHasMovedInPlace(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 2)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	l.evictUntilMarked("db")
	l.wantMark(true)
	l.moved(l.operator(func(o *operator.Options) { o.InPlace = true }), 1)
	l.eventually(http.StatusNotFound, inPlace, "db") // The cache of the guard is late.
	for range 3 {
		l.want(http.StatusNotFound, inPlace, l.evict("db"))
		l.wantMark(false)
	}
	l.wantAsked(false, "db")
	if len(l.requests()) != 1 {
		t.Errorf("the request must stay for a while: %v", l.requests())
	}
	// Its new Node is drained at once. The pod runs there, so the guard must not report it as gone.
	l.cordon(true, l.nodes[1])
	l.evictUntilMarked("db")
	l.cordon(false, l.nodes...)
	moved := l.get("db")
	time.Sleep(time.Until(moved.CreationTimestamp.Add(keep + time.Second)))
	l.until(l.ctx(), func() error {
		for _, r := range l.requests() {
			if r.Spec.Pod.UID != moved.UID {
				return fmt.Errorf("there is a request for a pod that is gone: %s", r.Name)
			}
		}
		return nil
	})
}

// moved waits until an operator has finished that many moves.
func (l *lab) moved(op *operator.Operator, n int) []operator.Move {
	l.t.Helper()
	l.until(l.ctx(), func() error {
		if got := len(op.Moves()); got < n {
			return fmt.Errorf("%d pods are moved, want %d", got, n)
		}
		return nil
	})
	return op.Moves()
}

// TestTwoDrainsAtOnce drains two Nodes while an operator moves pods in place from each. The only other Node is the
// third.
func TestTwoDrainsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 3)
	l.policy()
	op := l.operator(func(o *operator.Options) { o.InPlace, o.Delay = true, work })
	l.protected("db-0", l.nodes[0])
	l.protected("db-1", l.nodes[1])
	l.protected("db-2", l.nodes[0])
	var wg sync.WaitGroup
	for _, node := range l.nodes[:2] {
		wg.Go(func() {
			if _, err := l.drain(l.ctx(), node); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.settled(op, 3, l.nodes[:2]...)
}

// TestTheNextNodeIsDrainedAtOnce drains the Node to which a pod was just moved under its name, while the first drain
// may still run. The pod moves again, and no answer reports it as gone before that.
func TestTheNextNodeIsDrainedAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 3)
	l.policy()
	op := l.operator(func(o *operator.Options) { o.InPlace = true })
	l.cordon(true, l.nodes[2])
	l.protected("db", l.nodes[0])
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := l.drain(l.ctx(), l.nodes[0]); err != nil {
			t.Error(err)
		}
	})
	if to := l.moved(op, 1)[0].To.Spec.NodeName; to != l.nodes[1] {
		t.Fatalf("it was moved to %s", to)
	}
	l.cordon(false, l.nodes[2])
	_, err := l.drain(l.ctx(), l.nodes[1])
	wg.Wait()
	l.must(err)
	l.settled(op, 2, l.nodes[:2]...)
}

// TestADrainThatIsInterrupted is started again, after its operator crashed.
func TestADrainThatIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, inPlace := range map[string]bool{"NewName": false, "SameName": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 2)
			l.policy()
			op := l.operator(func(o *operator.Options) { o.InPlace = inPlace })
			op.Stop()
			l.protected("db", l.nodes[0])
			draining, interrupt := context.WithCancel(l.ctx())
			go func() {
				defer interrupt()
				_ = plane.Until(draining, func(ctx context.Context) error {
					pod := &corev1.Pod{}
					if err := l.Client.Get(ctx, client.ObjectKey{Namespace: l.ns, Name: "db"}, pod); err != nil {
						return err
					}
					if pod.Annotations[operator.RescheduleAnnotation] == "" {
						return errNotYet
					}
					return nil
				})
			}()
			if _, err := l.drain(draining, l.nodes[0]); err == nil {
				t.Fatal("the drain must not end while nobody moves the pod")
			}
			l.wantAsked(true, "db")
			op.Start(t.Context())
			_, err := l.drain(l.ctx(), l.nodes[0])
			l.must(err)
			l.settled(op, 1, l.nodes[0])
		})
	}
}

// TestWhatWasWrittenBefore has records of an earlier pod with the same name. A pod that runs on a draining Node is
// never reported as gone.
func TestWhatWasWrittenBefore(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 2)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	l.evictUntilMarked("db")
	op := l.operator(func(o *operator.Options) { o.InPlace = true })
	l.moved(op, 1) // The drain is aborted: no client evicts any more, and the mark stays.
	op.Silence(true)
	l.cordon(false, l.nodes[0])
	l.cordon(true, l.nodes[1])
	// a mark of Couchbase's own hook
	edit(l, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}, func(n *corev1.Namespace) {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, evictionv1.TrackingPrefix+l.ns+".other", "true")
	})
	l.protected("other", l.nodes[1])
	for _, pod := range []string{"db", "other"} {
		l.evictUntilMarked(pod)
		l.want(http.StatusTooManyRequests, waiting, l.evict(pod))
	}
}
