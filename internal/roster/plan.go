// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departure"
)

// Fleet returns the input of departure.Decide for a Cluster. next is the first instant at which the result changes
// without another report, zero if there is none. A machine with an unused grant counts as started.
func (r *Roster) Fleet(key client.ObjectKey, now time.Time) (f departure.Fleet, next time.Time) {
	f.Now = now
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clusters[key]
	if c == nil {
		return f, next
	}
	for _, m := range c.members {
		if m.expired(now) {
			m.expireGrant(c, now)
		}
	}
	c.started = departure.Recent(c.started, now)
	f.Started = append(f.Started, c.started...)
	c.departed = departure.Within(c.departed, now, departure.MaxWait)
	f.Departed = len(c.departed)
	for name, m := range c.members {
		if m.NeverRan && m.Left.IsZero() && !m.verdict.Granted {
			f.NeverRan++
		}
		switch {
		case !m.Left.IsZero():
		case m.verdict.Granted:
			f.Departed++
			f.Started = append(f.Started, departure.Earliest(m.tried(now), now))
			next = departure.Earliest(next, m.grantEnds())
		case m.due(now) && now.Before(m.suspendedUntil(now)):
			f.Active++
			next = departure.Earliest(next, m.suspendedUntil(now))
		case m.due(now):
			f.Active++
			f.Candidates = append(f.Candidates, departure.Candidate{
				Name: name.String(), Lane: m.Lane, Priority: m.Priority, End: m.End, Since: m.From, Refused: m.refused, NeverRan: m.NeverRan,
			})
		default:
			f.Active++
			next = departure.Earliest(next, m.From)
		}
	}
	switch {
	case len(c.members) > 0:
	case len(c.started) == 0:
		delete(r.clusters, key)
	default:
		next = slices.MaxFunc(c.started, time.Time.Compare).Add(departure.Window)
	}
	return f, next
}

// Publish records a plan and enqueues the machines whose verdict changed.
func (r *Roster) Publish(key client.ObjectKey, p departure.Plan, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range p.Admitted {
		r.setVerdict(key, a, Verdict{Granted: true, Lane: a.Lane, Cycle: now.UnixMilli()}, now)
	}
	for _, waiting := range [][]departure.Waiting{p.Deferred, p.Held} {
		for _, w := range waiting {
			r.setVerdict(key, w.Candidate, Verdict{Reason: w.Reason, Message: p.Explain(w)}, now)
		}
	}
}

// setVerdict records a verdict. It drops the verdict if the Entry has changed since the plan was made.
func (r *Roster) setVerdict(key client.ObjectKey, c departure.Candidate, v Verdict, now time.Time) {
	name := ParseName(c.Name)
	m := r.members[name]
	if m == nil || m.Cluster != key || !m.due(now) || !m.From.Equal(c.Since) || m.verdict == v {
		return
	}
	m.verdict = v
	if v.Granted {
		m.granted = now
	}
	for _, tell := range r.machines {
		tell(name)
	}
}

// Clusters is the source that enqueues a Cluster at the planner when its machines change.
func (r *Roster) Clusters() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.planner = queue
		for key := range r.clusters {
			wake(queue, key)
		}
		return nil
	})
}

// Wake enqueues every Cluster at the planner.
func (r *Roster) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.clusters {
		wake(r.planner, key)
	}
}

// RequestFor returns the request for a ScheduledMachine, the zero value for an orphan.
func RequestFor(scheduled types.NamespacedName) ctrl.Request {
	if _, orphan := ParseOrphanName(scheduled); orphan {
		return ctrl.Request{}
	}
	return ctrl.Request{NamespacedName: scheduled}
}

// Machines is the source that enqueues a request at a controller when the planner's verdict on a machine
// changes. request maps the Roster name to the request. A zero request is dropped.
func (r *Roster) Machines(request func(scheduled types.NamespacedName) ctrl.Request) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		if r == nil {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.machines = append(r.machines, func(scheduled types.NamespacedName) {
			if req := request(scheduled); req.Name != "" {
				queue.Add(req)
			}
		})
		return nil // Each machine has been reported by a reconcile, so it needs no initial request.
	})
}

// ParseName parses the name of a candidate.
func ParseName(s string) types.NamespacedName {
	for i := range len(s) {
		if s[i] == types.Separator {
			return types.NamespacedName{Namespace: s[:i], Name: s[i+1:]}
		}
	}
	return types.NamespacedName{Name: s}
}
