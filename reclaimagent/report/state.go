// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// settleFor is how long a state has to stand before it is told: a start and a
	// change of configuration are one write, and an owner's program that runs already
	// is reported before.
	settleFor = time.Second

	// firstTelling and lastTelling bound the time between two tries, before jitter.
	// Nobody waits for it.
	firstTelling = time.Second
	lastTelling  = time.Minute

	// lookEvery is how often the Node is looked at for what was told: somebody may
	// have taken it off, or made another Node of that name.
	lookEvery = 5 * time.Minute
)

// errAsking says that the Node carries a request. What is told of an agent could be
// taken for news of that request, so it waits.
var errAsking = errors.New("the node carries a request")

// A Teller tells the Node what the agent looks for, and how. It has a goroutine and
// requests of its own, so that no request for the machine waits for it.
type Teller struct {
	r *Reporter
	// told is called with whether the Node says what is so, and the agent is not blind.
	told func(bool)

	mu sync.Mutex
	// config is what is looked for, state what was said last.
	config string
	state  reclaim.AgentState
	news   chan struct{}
}

// NewTeller returns a Teller. told is called, from the goroutine of Run, with whether
// the Node says what is so, and the agent is not blind.
func NewTeller(o Options, told func(bool)) *Teller {
	return &Teller{r: New(o), told: told, news: make(chan struct{}, 1)}
}

// Arm says what is looked for from now on. It is told once [Teller.Use] says how.
func (t *Teller) Arm(c reclaim.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.config = c.Hash()
}

// Use says by which detector, and whether that is blind. An empty one, between two
// configurations, is no news.
func (t *Teller) Use(detector string, blind bool) {
	switch {
	case detector == "":
		return
	case blind:
		detector = reclaim.BlindDetector
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(reclaim.AgentState{Detector: detector, Config: t.config})
}

// Rest says that c asks for nothing.
func (t *Teller) Rest(c reclaim.Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(reclaim.AgentState{Detector: reclaim.NoDetector, Config: c.Hash()})
}

// say needs the lock.
func (t *Teller) say(s reclaim.AgentState) {
	if s == t.state {
		return
	}
	t.state = s
	select {
	case t.news <- struct{}{}:
	default:
	}
}

func (t *Teller) current() reclaim.AgentState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// Run tells the Node until ctx is done.
func (t *Teller) Run(ctx context.Context) {
	log := t.r.newComplaints("Telling the Node what is looked for")
	backoff := retry.Backoff{First: firstTelling, Last: lastTelling}
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.news:
			t.told(false)
			backoff.Reset()
			timer.Reset(retry.Jitter(settleFor))
		case <-timer.C:
			timer.Reset(t.turn(ctx, &backoff, log))
		}
	}
}

// turn tells the Node, and returns when it is looked at again. A server that does not
// answer is no news of what the Node says.
func (t *Teller) turn(ctx context.Context, backoff *retry.Backoff, log *complaints) time.Duration {
	s := t.current()
	err := t.tell(ctx, s)
	switch {
	case err == nil:
		t.told(s.Detector != reclaim.BlindDetector)
		backoff.Reset()
		return retry.Jitter(lookEvery)
	case kubeapi.Code(err) != 0, errors.Is(err, ErrHostIdentity):
		t.told(false)
		log.complain(err)
	case ctx.Err() == nil && !errors.Is(err, errAsking):
		log.complain(err)
	}
	return backoff.Next()
}

// tell writes s, unless the Node says it already. The Node is read before, because it
// may be another machine's: nothing is told about that.
func (t *Teller) tell(ctx context.Context, s reclaim.AgentState) error {
	n, err := t.r.get(ctx, "")
	if err != nil {
		return err
	}
	if err := t.r.identify(n); err != nil {
		return err
	}
	switch {
	case n.requested():
		return errAsking
	case n.Metadata.Annotations[reclaim.StateAnnotation] == s.Text():
		return nil
	}
	// A merge of one key takes nothing from others, and works on every server. The
	// identity keeps it from a Node that came since.
	return t.r.patch(ctx, kubeapi.MergePatch, map[string]any{"metadata": map[string]any{
		"uid": n.Metadata.UID, "annotations": map[string]string{reclaim.StateAnnotation: s.Text()},
	}})
}
