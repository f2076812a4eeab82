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

	// nodeReadInterval is the interval at which the agent checks whether the request was cleared, or made. A watch would
	// be faster by seconds, but would need permission to watch Nodes.
	nodeReadInterval = 5 * time.Second

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
	// UnblockRead is Unblock for reads of the Node.
	UnblockRead(on bool)
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

// Reporter reads and writes one Node. Only one goroutine at a time may call Report or Deliver, and only one may call
// Requested.
type Reporter struct {
	o Options
	// mergeOnly means that the server rejected a JSON Patch.
	mergeOnly bool
	// requestedReads are shared by all calls of Requested.
	requestedReads *attempts
}

// New returns a Reporter.
func New(o Options) *Reporter {
	r := &Reporter{o: o}
	r.requestedReads = r.reads()
	return r
}

// Requested reports whether the Node has a request. It returns [ErrHostIdentity] if the Node describes another machine,
// because a report would fail with it as well. The result is valid also with that error.
func (r *Reporter) Requested(ctx context.Context) (bool, error) {
	n, err := r.read(ctx, true, r.requestedReads)
	return n != nil && n.requested(), err
}

// Deliver retries Report until the API server accepts it. The end of the matching program does not stop it. It returns
// nil, [ErrHostIdentity], or the error of ctx.
func (r *Reporter) Deliver(ctx context.Context, reason string, at time.Time) error {
	log := r.newFailureLog("Reporting to Node")
	attempts := attempts{now: r.o.Now, unblock: r.o.Holder.Unblock}
	for backoff := (retry.Backoff{First: firstRetry, Last: lastRetry}); ; {
		err := attempts.do(func() error { return r.Report(ctx, reason, at) })
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

// attempts tracks the retries of one request. After a network or server error, one attempt in unblockInterval runs with
// the pods released, because the request may need one of them.
type attempts struct {
	now       func() time.Time
	unblock   func(on bool)
	failed    bool
	unblocked time.Time
}

func (a *attempts) do(request func() error) error {
	unblock := a.failed && a.now().Sub(a.unblocked) >= unblockInterval
	if unblock {
		a.unblock(true)
	}
	err := request()
	if unblock {
		a.unblock(false)
		a.unblocked = a.now()
	}
	code := kubeapi.Code(err)
	a.failed = err != nil && (code == 0 || code >= http.StatusInternalServerError)
	return err
}

// AwaitCleared waits until the Node has no request, or does not exist. It returns nil or the error of ctx.
func (r *Reporter) AwaitCleared(ctx context.Context) error {
	return r.await(ctx, "Checking whether the request was cleared", r.o.Holder.Enabled, func(n *node, err error) bool {
		return kubeapi.Code(err) == http.StatusNotFound || n != nil && !n.requested()
	})
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

func (l *failureLog) warn(err error) {
	now := l.r.o.Now()
	if err.Error() == l.text && now.Sub(l.at) < repeatLogInterval {
		return
	}
	l.text, l.at = err.Error(), now
	l.r.o.Log.Warn(l.action, "err", err)
}
