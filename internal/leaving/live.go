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

// nextTry is when a look that failed is tried again.
const nextTry = 5 * time.Second

// A Live is a Step's part for one Machine, where the Step looks at the workload cluster. Its looks
// are calls at a Desk that is the Step's alone.
type Live struct {
	// Look looks once, and does what is next.
	Look func(context.Context) Answer
	// Has is how long the Machine waits at most, and Call how long one look may take.
	Has, Call time.Duration
	// Again is how soon a Machine that the step let go is looked at once more while others hold it;
	// zero is never.
	Again time.Duration
	// Reason is that of the condition ReadyToLeave once it is known for whom the Machine waits.
	Reason string
	// Unseen says that nobody has looked yet, and Late that Has is over.
	Unseen, Late string
}

// Follow says whether the Machine waits. It begins a look where one is due, and waits for none.
func (d *Desk) Follow(ctx context.Context, of Departing, l Live, now time.Time) Verdict {
	q := Question{Machine: of.Machine.UID, Step: laneOf(of.Cluster()), Phase: string(of.Phase)}
	p := d.Look(q, 0)
	v, due := l.judge(p, of.Began, now)
	if v.Reason = l.Reason; v.Holds && p.Answered.IsZero() {
		v.Reason = v1alpha1.AskingReason
	}
	if due {
		d.Ask(ctx, client.ObjectKeyFromObject(of.Machine), q, 0, func(ctx context.Context) Answer {
			ctx, cancel := context.WithTimeout(ctx, l.Call)
			defer cancel()
			return l.Look(ctx)
		})
	}
	return v
}

// Woken wakes a Machine about which there is an answer.
func (d *Desk) Woken() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		d.Start(ctx, func(machine types.NamespacedName) { queue.Add(ctrl.Request{NamespacedName: machine}) })
		return nil
	})
}

// laneOf has the clusters not take each other's places at the Desk: one that does not answer
// keeps all of its own.
func laneOf(cluster client.ObjectKey) types.UID { return types.UID(cluster.String()) }

// judge weighs how far a Machine has come, and says whether a look is due. Before the first answer
// nobody knows whether anybody is waited for, and nobody is told that somebody is.
func (l Live) judge(p Progress, began, now time.Time) (v Verdict, due bool) {
	a, wait, says := p.Answer, nextTry, l.Unseen
	until := p.Until(l.Has, l.Call, began, now)
	switch {
	case p.Answered.IsZero():
		wait = 0
	case a.Err != nil:
		says = a.Err.Error()
	case a.Wait == 0:
		v = Verdict{Missed: a.Missed, Note: a.Says}
		if l.Again == 0 || p.Open || !now.Before(until) {
			return v, false
		}
		if next := p.Answered.Add(l.Again); next.After(now) {
			v.Again = next
			return v, false
		}
		return v, true
	default:
		wait, says = a.Wait, a.Says
	}
	if !now.Before(until) {
		return Verdict{Missed: true, Note: l.Late + ": " + says}, false
	}
	v = Verdict{Holds: true, Again: until}
	if !p.Answered.IsZero() {
		v.Note = fmt.Sprintf("%s (until %s at the latest)", says, until.UTC().Format(time.RFC3339))
	}
	if next := p.Answered.Add(wait); !p.Open && next.After(now) {
		if next.Before(until) {
			v.Again = next
		}
		return v, false
	}
	return v, !p.Open
}
