// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// stateWriteDelay is the delay before a new state is written. A start and a change of the configuration then cause
	// one write, and a program that already runs is reported first.
	stateWriteDelay = time.Second

	// firstStateRetry and maxStateRetry bound the retry delay of the state, before jitter. It is not urgent.
	firstStateRetry = time.Second
	maxStateRetry   = time.Minute

	// stateCheckInterval is the interval at which the annotation is checked: it may have been removed, or the Node may
	// have been created again.
	stateCheckInterval = 5 * time.Minute
)

// errRequested means that the Node has a request. The state is not written then, because it could be mistaken for a
// change of that request.
var errRequested = errors.New("the node carries a request")

// StateReporter writes the state of the agent to an annotation of the Node: the detector and the hash of the Config. It
// has its own goroutine and requests, so that it never delays a request for the machine.
type StateReporter struct {
	r *Reporter
	// setCurrent is called with true if the annotation is current and the agent is not blind, else with false.
	setCurrent func(bool)

	mu sync.Mutex
	// config is the hash of the Config in use. state is the newest state, for Run in states.
	config string
	state  reclaim.AgentState
	states Latest[reclaim.AgentState]
}

// NewStateReporter returns a StateReporter. Run calls setCurrent from its goroutine, with true if the annotation is
// current and the agent is not blind, else with false.
func NewStateReporter(o Options, setCurrent func(bool)) *StateReporter {
	return &StateReporter{r: New(o), setCurrent: setCurrent, states: NewLatest[reclaim.AgentState]()}
}

// SetConfig sets the Config in use. It is written after [StateReporter.SetDetector] sets the detector.
func (t *StateReporter) SetConfig(c reclaim.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.config = c.Hash()
}

// SetDetector sets the detector, and whether it is blind. An empty detector, between two Configs, is ignored.
func (t *StateReporter) SetDetector(detector string, blind bool) {
	switch {
	case detector == "":
		return
	case blind:
		detector = reclaim.BlindDetector
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setState(reclaim.AgentState{Detector: detector, Config: t.config})
}

// SetIdle sets the state for a Config without patterns.
func (t *StateReporter) SetIdle(c reclaim.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setState(reclaim.AgentState{Detector: reclaim.NoDetector, Config: c.Hash()})
}

// setState passes a state that has changed to Run. The caller must hold mu.
func (t *StateReporter) setState(s reclaim.AgentState) {
	if s == t.state {
		return
	}
	t.state = s
	t.states.Put(s)
}

// Run writes the state to the Node until ctx is done.
func (t *StateReporter) Run(ctx context.Context) {
	log := t.r.newFailureLog("Writing the agent state to the Node")
	backoff := retry.Backoff{First: firstStateRetry, Last: maxStateRetry}
	var due <-chan time.Time
	var s reclaim.AgentState
	for {
		select {
		case <-ctx.Done():
			return
		case s = <-t.states:
			t.setCurrent(false)
			backoff.Reset()
			due = time.NewTimer(retry.Jitter(stateWriteDelay)).C
		case <-due:
			due = time.NewTimer(t.reconcile(ctx, s, &backoff, log)).C
		}
	}
}

// reconcile writes s and returns the delay until the next check. If the server does not answer, is overloaded or fails,
// setCurrent is not called, because the annotation is unknown.
func (t *StateReporter) reconcile(ctx context.Context, s reclaim.AgentState, backoff *retry.Backoff, log *failureLog) time.Duration {
	err := t.writeState(ctx, s)
	switch {
	case err == nil:
		t.setCurrent(s.Detector != reclaim.BlindDetector)
		backoff.Reset()
		return retry.Jitter(stateCheckInterval)
	case IsRefusal(err), errors.Is(err, ErrHostIdentity):
		t.setCurrent(false)
		log.warn(err)
	case ctx.Err() == nil && !errors.Is(err, errRequested):
		log.warn(err)
	}
	return backoff.Next()
}

// IsRefusal reports whether the server refused the request, and would refuse it again. It is false for an overloaded
// server.
func IsRefusal(err error) bool {
	code := kubeapi.Code(err)
	return code != 0 && code != http.StatusTooManyRequests && code < http.StatusInternalServerError
}

// writeState writes s, unless the annotation has it already. It reads the Node first. It writes nothing if the Node is
// another machine or has a request.
func (t *StateReporter) writeState(ctx context.Context, s reclaim.AgentState) error {
	text := s.Text()
	switch n, err := t.r.getIdentified(ctx); {
	case err != nil:
		return err
	case n.requested():
		return errRequested
	case n.Metadata.Annotations[reclaim.StateAnnotation] == text:
		return nil
	default:
		return t.r.annotate(ctx, n, reclaim.StateAnnotation, &text)
	}
}
