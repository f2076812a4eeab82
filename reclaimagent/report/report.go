// SPDX-License-Identifier: Apache-2.0

// Package report writes the owner's request, and the state of the agent, to the annotations of the Node.
package report

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// requestTimeout is the timeout of one request. A report that hangs on a dead connection is sent again.
	requestTimeout = 5 * time.Second

	// firstRetry and lastRetry bound the retry delay, before jitter. The first delays are below a second because the
	// owner waits. Later ones protect a server that is down.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 10 * time.Second

	// repeatLogInterval is the minimum interval between log messages about the same failure.
	repeatLogInterval = time.Minute

	// clearedEvery is the interval at which the agent checks whether the request was cleared, or made. A watch would be faster
	// by seconds, but would need permission to watch Nodes.
	clearedEvery = 5 * time.Second

	// unblockInterval is the interval between attempts for which pods run. An attempt takes at most requestTimeout.
	unblockInterval = time.Minute

	// keepAliveInterval is the interval of requests that keep a connection open. The idle timeout is 90 s.
	keepAliveInterval = 45 * time.Second
)

// Client is the part of the API client that a Reporter needs.
type Client interface {
	Do(ctx context.Context, r kubeapi.Request, into any) error
	Multiplexed() bool
}

// Holder holds the pods of the machine.
type Holder interface {
	// Enabled reports whether the Config has a hold. Then the reads include the taints.
	Enabled() bool
	// Observe receives each read of the Node, with the instant at which it started.
	Observe(n hold.Node, started time.Time)
	// Unblock is called with true before some attempts of Deliver, and with false after them: an attempt may need a pod
	// that is frozen.
	Unblock(on bool)
}

// Options are the dependencies of a Reporter. All but MachineID are required.
type Options struct {
	Client Client
	// Node is the name of this machine's Node.
	Node string
	// MachineID is the machine ID that the Node must have. Empty skips the check.
	MachineID string
	Log       *slog.Logger
	Now       func() time.Time
	Holder    Holder
}

// Reporter reads and writes one Node. Only one goroutine at a time may call Report or Deliver.
type Reporter struct {
	o Options
	// mergeOnly means that the server rejected a JSON Patch.
	mergeOnly bool
}

// New returns a Reporter.
func New(o Options) *Reporter { return &Reporter{o: o} }

// Requested reports whether the Node has a request. It returns [ErrHostIdentity] if the Node describes another machine,
// because a report would fail with it as well. The result is valid also with that error.
func (r *Reporter) Requested(ctx context.Context) (bool, error) {
	n, err := r.read(ctx, true)
	return n != nil && n.requested(), err
}

// Deliver retries Report until the API server accepts it, also if the program ends meanwhile: its owner needed the
// machine. It returns nil, [ErrHostIdentity], or the error of ctx.
func (r *Reporter) Deliver(ctx context.Context, reason string, at time.Time) error {
	log := r.newFailureLog("Reporting to Node")
	var unblocked time.Time
	for backoff, attempt := (retry.Backoff{First: firstRetry, Last: lastRetry}), 0; ; attempt++ {
		unblock := attempt > 0 && r.o.Now().Sub(unblocked) >= unblockInterval
		if unblock {
			r.o.Holder.Unblock(true)
		}
		err := r.Report(ctx, reason, at)
		if unblock {
			r.o.Holder.Unblock(false)
			unblocked = r.o.Now()
		}
		if err == nil || errors.Is(err, ErrHostIdentity) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.warn(err)
		if err := retry.Sleep(ctx, backoff.Next()); err != nil {
			return err
		}
	}
}

// AwaitCleared waits until the Node has no request, or does not exist. It returns nil or the error of ctx.
func (r *Reporter) AwaitCleared(ctx context.Context) error {
	log := r.newFailureLog("Checking whether the request was cleared")
	for {
		if err := retry.Sleep(ctx, retry.Jitter(clearedEvery)); err != nil {
			return err
		}
		n, err := r.read(ctx, r.o.Holder.Enabled())
		switch {
		case kubeapi.Code(err) == http.StatusNotFound, n != nil && !n.requested():
			return nil
		case err != nil && ctx.Err() == nil:
			log.warn(err)
		}
	}
}

// KeepWarm keeps a connection open until ctx is done, so that a report needs one round trip. Over HTTP/2 the
// ConfigMap's watch keeps it open, and KeepWarm sends nothing.
func (r *Reporter) KeepWarm(ctx context.Context) {
	for retry.Sleep(ctx, retry.Jitter(keepAliveInterval)) == nil {
		if !r.o.Client.Multiplexed() {
			_, _ = r.get(ctx, kubeapi.MetadataOnly)
		}
	}
}

// failureLog logs a lasting failure once, and again every repeatLogInterval.
type failureLog struct {
	r      *Reporter
	action string
	text   string
	at     time.Time
}

func (r *Reporter) newFailureLog(action string) *failureLog { return &failureLog{r: r, action: action} }

func (c *failureLog) warn(err error) {
	now := c.r.o.Now()
	if err.Error() == c.text && now.Sub(c.at) < repeatLogInterval {
		return
	}
	c.text, c.at = err.Error(), now
	c.r.o.Log.Warn(c.action, "err", err)
}
