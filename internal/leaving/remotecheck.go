// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// nextTry is the delay after a failed check.
const nextTry = 5 * time.Second

// neverChecked is the detail of the message if no check has returned within MaxWait.
const neverChecked = "no read of the pods has returned yet"

// A RemoteCheck describes the check that a Step makes in the workload cluster for one Machine. The Step has a
// BackgroundCalls of its own, which runs the check in the background.
type RemoteCheck struct {
	// Check makes one check and starts the next action.
	Check func(context.Context) Response
	// MaxWait is the longest time that the Machine waits, Call the timeout of one check.
	MaxWait, Call time.Duration
	// RecheckInterval is how often a finished step checks again while others hold the Machine. Zero means never.
	RecheckInterval time.Duration
	// Reason is the reason of the condition ReadyForDeletion after the first check.
	Reason string
	// TimedOut is the message after MaxWait.
	TimedOut string
}

// CheckRemote returns the verdict from the latest check, and starts a check if one is due. It does not block.
func (b *BackgroundCalls) CheckRemote(ctx context.Context, of Departing, l RemoteCheck, now time.Time) Verdict {
	key := CallKey{Machine: of.Machine.UID, Step: queueOf(of.Cluster()), Phase: string(of.Phase)}
	p := b.Progress(key, 0)
	v, due := l.verdict(p, of.Began, now)
	if v.Reason = l.Reason; v.Holds && p.LastAnswered.IsZero() {
		v.Reason = v1alpha1.WaitingForResponseReason
	}
	if due {
		b.StartCall(ctx, client.ObjectKeyFromObject(of.Machine), key, 0, func(ctx context.Context) Response {
			ctx, cancel := context.WithTimeout(ctx, l.Call)
			defer cancel()
			return l.Check(ctx)
		})
	}
	return v
}

// Woken is the source that starts the BackgroundCalls and enqueues a Machine after each response.
func (b *BackgroundCalls) Woken() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		b.Start(ctx, func(machine types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: machine}) })
		return nil
	})
}

// queueOf returns the key of a call queue per Cluster. A workload cluster that does not respond then blocks only its
// own calls.
func queueOf(cluster client.ObjectKey) types.UID { return types.UID(cluster.String()) }

// verdict returns the verdict for a Machine, and whether a check is due. The note is empty before the first
// check: the result is unknown until then.
func (l RemoteCheck) verdict(p Progress, began, now time.Time) (v Verdict, due bool) {
	a, wait, message := p.Answer, nextTry, neverChecked
	until := p.Until(l.MaxWait, l.Call, began, now)
	switch {
	case p.LastAnswered.IsZero():
		wait = 0
	case a.Err != nil:
		message = a.Err.Error()
	case a.Wait == 0:
		v = Verdict{Missed: a.Missed, Note: a.Message}
		if l.RecheckInterval == 0 || p.Open || !now.Before(until) {
			return v, false
		}
		if next := p.LastAnswered.Add(l.RecheckInterval); next.After(now) {
			v.Again = next
			return v, false
		}
		return v, true
	default:
		wait, message = a.Wait, a.Message
	}
	if !now.Before(until) {
		return Verdict{Missed: true, Note: l.TimedOut + ": " + message}, false
	}
	v = Verdict{Holds: true, Again: until}
	if !p.LastAnswered.IsZero() {
		v.Note = fmt.Sprintf("%s (until %s at the latest)", message, until.UTC().Format(time.RFC3339))
	}
	if next := p.LastAnswered.Add(wait); !p.Open && next.After(now) {
		if next.Before(until) {
			v.Again = next
		}
		return v, false
	}
	return v, !p.Open
}
