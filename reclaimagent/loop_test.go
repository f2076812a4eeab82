// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

type latestConfig = report.Latest[reclaim.Config]

// workstation implements all dependencies of the loop, in synctest's time.
type workstation struct {
	mu sync.Mutex
	// running are the processes, by name.
	running []string
	// parting is what the detector finds while it stops.
	parting *detect.Match
	// broken is the error of the detector.
	broken error
	armed  []string

	requested bool
	// reading and reporting are the first responses of the Node to reads and to reports.
	reading, reporting []error
	reports            []string
	cleared            chan struct{}
	recordedStates     recordedStates
	// calls are the calls of the holder, and the reports in between.
	calls []string
	// byPerson means that a person requested the machine. watched counts the waits for that.
	byPerson chan struct{}
	watched  int
}

// recordedHold records the calls of the holder.
type recordedHold struct{ w *workstation }

func (r recordedHold) Matched(_ context.Context, at time.Time) {
	r.w.call("matched " + at.UTC().Format(time.TimeOnly))
}
func (r recordedHold) Requested()    { r.w.call("requested") }
func (r recordedHold) Refuse(string) { r.w.call("refused") }

func (w *workstation) call(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, name)
}

func (w *workstation) AwaitRequested(ctx context.Context) error {
	w.mu.Lock()
	w.watched++
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.byPerson:
		return nil
	}
}

func (w *workstation) Run(ctx context.Context, m *match.Matcher, interval time.Duration, emit func(detect.Match)) error {
	w.mu.Lock()
	w.armed = append(w.armed, interval.String())
	w.mu.Unlock()
	for ctx.Err() == nil {
		w.mu.Lock()
		err := w.broken
		w.mu.Unlock()
		if err != nil {
			return err
		}
		found, _ := w.Scan(m)
		for _, f := range found {
			emit(f)
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parting != nil {
		emit(*w.parting)
		w.parting = nil
	}
	return nil
}

func (w *workstation) Scan(m *match.Matcher) ([]detect.Match, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []detect.Match
	for i, name := range w.running {
		if hit, ok := m.Match([]byte(name), nil); ok {
			found = append(found, detect.Match{PID: i + 1, Hit: hit})
		}
	}
	return found, nil
}

func (w *workstation) Requested(context.Context) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.reading) > 0 {
		err := w.reading[0]
		w.reading = w.reading[1:]
		return false, err
	}
	return w.requested, nil
}

func (w *workstation) Deliver(ctx context.Context, reason string, at time.Time) error {
	for {
		w.mu.Lock()
		if len(w.reporting) == 0 {
			w.reports = append(w.reports, reason+" "+at.UTC().Format(time.TimeOnly))
			w.calls = append(w.calls, "delivered")
			w.requested = true
			w.mu.Unlock()
			return nil
		}
		err := w.reporting[0]
		if !errors.Is(err, report.ErrHostIdentity) {
			w.reporting = w.reporting[1:]
		}
		w.mu.Unlock()
		if errors.Is(err, report.ErrHostIdentity) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
	}
}

func (w *workstation) AwaitCleared(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.cleared:
		w.mu.Lock()
		w.requested = false
		w.mu.Unlock()
		return nil
	}
}

func (w *workstation) set(f func(w *workstation)) { w.mu.Lock(); f(w); w.mu.Unlock(); synctest.Wait() }

func (w *workstation) runs(names ...string) { w.set(func(w *workstation) { w.running = names }) }

func (w *workstation) loop() *loop {
	return &loop{
		log: slog.New(slog.DiscardHandler), now: time.Now, counts: &metrics.Set{},
		detector: w, reporter: w, stateReporter: &w.recordedStates, holder: recordedHold{w}, configs: report.NewLatest[reclaim.Config](),
	}
}

// recordedStates records the states that the loop reports.
type recordedStates struct {
	mu     sync.Mutex
	states []string
}

func (t *recordedStates) add(what string, c reclaim.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states = append(t.states, what+" "+c.Hash())
}

func (t *recordedStates) SetConfig(c reclaim.Config) { t.add("config", c) }
func (t *recordedStates) SetIdle(c reclaim.Config)   { t.add("idle", c) }

// TestReportedStates checks the states that the loop reports.
func TestReportedStates(t *testing.T) {
	config, idle := "config "+java.Hash(), "idle "+reclaim.Config{}.Hash()
	cases := map[string]struct {
		reason    string
		requested bool
		configs   []reclaim.Config
		want      []string
	}{
		"NotLoaded":     {"Before the first Config nothing is reported.", false, nil, nil},
		"NothingAsked":  {"A Config without patterns is reported.", false, []reclaim.Config{{}}, []string{idle}},
		"Armed":         {"The Config is reported.", false, []reclaim.Config{java}, []string{config}},
		"Changed":       {"Every change is reported.", false, []reclaim.Config{java, idea}, []string{config, "config " + idea.Hash()}},
		"Disarmed":      {"The end of the patterns is reported.", false, []reclaim.Config{java, {}}, []string{config, idle}},
		"RequestStands": {"While the Node has a request, the agent does not watch.", true, []reclaim.Config{java}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &workstation{requested: tc.requested, cleared: make(chan struct{})}
				l := w.loop()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.run(ctx) }()
				synctest.Wait()
				for _, c := range tc.configs {
					l.configs.Put(c)
					time.Sleep(time.Minute)
				}
				cancel()
				<-ended
				if diff := cmp.Diff(tc.want, w.recordedStates.states); diff != "" {
					t.Errorf("%s\n-want, +states:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

var (
	java = reclaim.ConfigFor([]string{"java"})
	idea = reclaim.ConfigFor([]string{"idea"})
)

func TestLoop(t *testing.T) {
	cases := map[string]struct {
		reason string
		w      *workstation
		story  func(w *workstation, configs latestConfig)
		want   []string
		err    error
	}{
		"Inert": {
			reason: "Without a configuration nothing is watched.",
			story:  func(w *workstation, _ latestConfig) { w.runs("java"); time.Sleep(time.Hour) },
		},
		"EmptyConfig": {
			reason: "Nor with an empty one.",
			story:  func(w *workstation, c latestConfig) { w.runs("java"); c.Put(reclaim.Config{}); time.Sleep(time.Hour) },
		},
		"ProcessThenConfig": {
			reason: "A process that runs already counts.",
			story:  func(w *workstation, c latestConfig) { w.runs("java"); c.Put(java); time.Sleep(time.Second) },
			want:   []string{"process-match: java 00:00:00"},
		},
		"ConfigThenProcess": {
			reason: "A process that starts later counts.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				time.Sleep(time.Hour)
				w.runs("java")
				time.Sleep(time.Second)
			},
			want: []string{"process-match: java 01:00:00"},
		},
		"ReportedOnce": {
			reason: "The agent continues without a second report.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				w.runs("java")
				time.Sleep(time.Hour)
				c.Put(idea)
				time.Sleep(time.Hour)
			},
			want: []string{"process-match: java 00:00:00"},
		},
		"ClearedWhileItRuns": {
			reason: "Re-enabling while the process runs ejects again.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				w.runs("java")
				time.Sleep(time.Hour)
				w.cleared <- struct{}{}
				time.Sleep(time.Second)
			},
			want: []string{"process-match: java 00:00:00", "process-match: java 01:00:00"},
		},
		"ConfigChangesWhileQuiet": {
			reason: "The newest configuration counts once the request is cleared.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				w.runs("java", "idea")
				time.Sleep(time.Minute)
				c.Put(java)
				c.Put(idea)
				w.cleared <- struct{}{}
				time.Sleep(time.Second)
			},
			want: []string{"process-match: java 00:00:00", "process-match: idea 00:01:00"},
		},
		"DisarmedWhileQuiet": {
			reason: "A removed pattern is not used again, not even for a moment.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				w.runs("java")
				time.Sleep(time.Minute)
				c.Put(reclaim.Config{})
				w.cleared <- struct{}{}
				time.Sleep(time.Hour)
			},
			want: []string{"process-match: java 00:00:00"},
		},
		"RequestStands": {
			reason: "A request from before the start is not written again.",
			w:      &workstation{requested: true},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Hour) },
		},
		"ChangeRearms": {
			reason: "A change counts at once.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				w.runs("idea")
				time.Sleep(time.Minute)
				c.Put(idea)
				synctest.Wait()
			},
			want: []string{"process-match: idea 00:01:00"},
		},
		"MatchAsTheConfigChanges": {
			reason: "A match of the earlier Config counts.",
			w:      &workstation{parting: &detect.Match{PID: 1, Hit: match.Hit{Pattern: "java"}}},
			story: func(_ *workstation, c latestConfig) {
				c.Put(java)
				time.Sleep(time.Minute)
				c.Put(idea)
				synctest.Wait()
			},
			want: []string{"process-match: java 00:01:00"},
		},
		"Disarmed": {
			reason: "A deleted configuration stops the watch.",
			story: func(w *workstation, c latestConfig) {
				c.Put(java)
				time.Sleep(time.Minute)
				c.Put(reclaim.Config{})
				synctest.Wait()
				w.runs("java")
				time.Sleep(time.Hour)
			},
		},
		"ServerAway": {
			reason: "The match is kept, with its time, although the process ends.",
			w:      &workstation{reporting: []error{errors.New("refused"), errors.New("refused")}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); w.runs(); time.Sleep(time.Hour) },
			want:   []string{"process-match: java 00:00:00"},
		},
		"ServerAwayAtTheStart": {
			reason: "Reading the Node is repeated until the server is there.",
			w:      &workstation{reading: []error{errors.New("refused"), errors.New("refused")}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(5 * time.Second) },
			want:   []string{"process-match: java 00:00:00"},
		},
		"RequestStandsServerAwayAtTheStart": {
			reason: "Nothing is written before the Node is read.",
			w:      &workstation{requested: true, reading: []error{errors.New("refused"), errors.New("refused")}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Hour) },
		},
		"RequestStandsServerOverloadedAtTheStart": {
			reason: "An overloaded server does not show that there is no request.",
			w:      &workstation{requested: true, reading: []error{&kubeapi.StatusError{Code: 429}, &kubeapi.StatusError{Code: 503}}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Hour) },
		},
		"ReadingForbidden": {
			reason: "An agent without the right to read may still write.",
			w:      &workstation{reading: []error{&kubeapi.StatusError{Code: 403}}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Second) },
			want:   []string{"process-match: java 00:00:00"},
		},
		"AnotherMachine": {
			reason: "Nothing is written, and the agent ends with an error.",
			w:      &workstation{reporting: []error{fmt.Errorf("%w: x", report.ErrHostIdentity)}},
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Hour) },
			err:    report.ErrHostIdentity,
		},
		"NoConnector": {
			reason: "The agent ends with the missing requirement.",
			w:      &workstation{broken: procevents.ErrUnavailable},
			story:  func(_ *workstation, c latestConfig) { c.Put(java); time.Sleep(time.Second) },
			err:    procevents.ErrUnavailable,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tc.w
				if w == nil {
					w = &workstation{}
				}
				w.cleared = make(chan struct{})
				l := w.loop()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.run(ctx) }()
				synctest.Wait()
				tc.story(w, l.configs)
				synctest.Wait()
				cancel()
				if err := <-ended; !errors.Is(err, tc.err) {
					t.Errorf("%s\nrun() = %v, want %v", tc.reason, err, tc.err)
				}
				// Retries have jitter, so a report may be late, but its time is exact.
				if name == "ServerAwayAtTheStart" {
					for i := range w.reports {
						w.reports[i] = w.reports[i][:len("process-match: java ")] + "00:00:00"
					}
				}
				if diff := cmp.Diff(tc.want, w.reports); diff != "" {
					t.Errorf("%s\nreports: -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestOnce(t *testing.T) {
	cases := map[string]struct {
		reason string
		w      *workstation
		config reclaim.Config
		read   error
		want   []string
		err    error
	}{
		"Match":       {"It is reported.", &workstation{running: []string{"bash", "java"}}, java, nil, []string{"process-match: java 00:00:00"}, nil},
		"NoMatch":     {"There is nothing to report.", &workstation{running: []string{"bash"}}, java, nil, nil, ErrNothing},
		"NoConfig":    {"The Config has no patterns.", &workstation{running: []string{"java"}}, reclaim.Config{}, nil, nil, ErrNothing},
		"Unreadable":  {"The Config is unknown.", &workstation{}, java, errors.ErrUnsupported, nil, errors.ErrUnsupported},
		"Stands":      {"The Node has a request.", &workstation{requested: true, running: []string{"java"}}, java, nil, nil, nil},
		"NotThisNode": {"Nothing is written.", &workstation{reading: []error{report.ErrHostIdentity}, running: []string{"java"}}, java, nil, nil, report.ErrHostIdentity},
		"ServerAway": {
			"The report times out.",
			&workstation{running: []string{"java"}, reporting: slices.Repeat([]error{errors.New("refused")}, 9)},
			java, nil, nil, context.DeadlineExceeded,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tc.w
				err := w.loop().once(t.Context(), func(context.Context) (reclaim.Config, error) { return tc.config, tc.read })
				if diff := cmp.Diff(tc.want, w.reports); diff != "" || !errors.Is(err, tc.err) {
					t.Errorf("%s\nonce() = %v, want %v. reports: -want, +got:\n%s", tc.reason, err, tc.err, diff)
				}
			})
		})
	}
}
