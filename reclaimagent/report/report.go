// SPDX-License-Identifier: Apache-2.0

// Package report answers one question: how does the Node learn that the owner
// wants the machine back? It knows nothing about processes.
package report

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// requestTimeout bounds one request. A report that hangs on a dead
	// connection is better sent again.
	requestTimeout = 5 * time.Second

	// firstRetry and lastRetry bound the time between two tries, before jitter:
	// below a second at first, because the owner waits; then kind to a server
	// that is down for everybody.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second

	// remindEvery bounds how often the same failure is logged.
	remindEvery = time.Minute

	// clearedEvery is how often the Node is asked whether its request was
	// cleared. A watch would be quicker by seconds where nobody waits, and would
	// need the right to watch nodes, which the agent is better without.
	clearedEvery = 5 * time.Second

	// warmEvery keeps a connection from idling out, which takes 90 s.
	warmEvery = 45 * time.Second
)

// Client is what a Reporter needs of an API server.
type Client interface {
	Do(ctx context.Context, r kubeapi.Request, into any) error
	Multiplexed() bool
}

// Options are what a Reporter needs. Client, Node, Log and Now are required.
type Options struct {
	Client Client
	// Node is the name of the Node that is this machine.
	Node string
	// MachineID is the identity of this machine, which the Node must have. Empty
	// skips the check.
	MachineID string
	Log       *slog.Logger
	Now       func() time.Time
}

// A Reporter writes to one Node. It belongs to one goroutine.
type Reporter struct {
	o Options
	// mergeOnly says that the server refused a JSON Patch.
	mergeOnly bool
}

// New returns a Reporter.
func New(o Options) *Reporter { return &Reporter{o: o} }

// Requested reports whether the Node carries a request, reading all of it: a
// Node that describes another machine is [ErrHostIdentity], which a report would
// meet too. The request is told whether or not there is that error.
func (r *Reporter) Requested(ctx context.Context) (bool, error) {
	n, err := r.get(ctx, "")
	if err != nil {
		return false, err
	}
	return n.requested(), r.identify(n)
}

// Deliver reports until the API server has it. It returns [ErrHostIdentity], the
// error of a ctx that is done, or nil.
func (r *Reporter) Deliver(ctx context.Context, reason string, at time.Time) error {
	log := r.newComplaints("Reporting to Node")
	for backoff := (retry.Backoff{First: firstRetry, Last: lastRetry}); ; {
		err := r.Report(ctx, reason, at)
		if err == nil || errors.Is(err, ErrHostIdentity) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.complain(err)
		if err := retry.Sleep(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// AwaitCleared waits until the Node carries no request, or is gone. It returns
// the error of a ctx that is done, or nil.
func (r *Reporter) AwaitCleared(ctx context.Context) error {
	log := r.newComplaints("Looking whether the request was cleared")
	for {
		if err := retry.Sleep(ctx, retry.Jitter(clearedEvery)); err != nil {
			return err
		}
		n, err := r.get(ctx, kubeapi.MetadataOnly)
		switch {
		case kubeapi.Code(err) == http.StatusNotFound, err == nil && !n.requested():
			return nil
		case err != nil && ctx.Err() == nil:
			log.complain(err)
		}
	}
}

// KeepWarm keeps a connection open until ctx is done, so that a report takes one
// round trip. Over HTTP/2 the watch of the ConfigMap does that at no cost.
func (r *Reporter) KeepWarm(ctx context.Context) {
	for retry.Sleep(ctx, retry.Jitter(warmEvery)) == nil {
		if !r.o.Client.Multiplexed() {
			_, _ = r.get(ctx, kubeapi.MetadataOnly)
		}
	}
}

// complaints logs a failure that goes on once, and then now and then.
type complaints struct {
	r    *Reporter
	what string
	text string
	at   time.Time
}

func (r *Reporter) newComplaints(what string) *complaints { return &complaints{r: r, what: what} }

func (c *complaints) complain(err error) {
	now := c.r.o.Now()
	if err.Error() == c.text && now.Sub(c.at) < remindEvery {
		return
	}
	c.text, c.at = err.Error(), now
	c.r.o.Log.Warn(c.what, "err", err)
}
