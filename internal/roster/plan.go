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

// Fleet returns the facts of a Cluster for departure.Decide, and the next instant at which
// time alone adds a candidate; zero is never. Who may start and has not is among those who
// started just now.
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
			m.miss(c, now)
		}
	}
	c.started = departure.Recent(c.started, now)
	f.Started = append(f.Started, c.started...)
	c.departed = departure.Within(c.departed, now, departure.Patience)
	f.Departed = len(c.departed)
	for name, m := range c.members {
		if m.NeverRan && m.Left.IsZero() && !m.verdict.Granted {
			f.NeverRan++
		}
		switch {
		case !m.Left.IsZero():
		case m.verdict.Granted:
			f.Departed++
			f.Started = append(f.Started, departure.Sooner(m.tried(now), now))
			next = departure.Sooner(next, m.grantEnds())
		case m.due(now) && now.Before(m.steppedAside(now)):
			f.Active++
			next = departure.Sooner(next, m.steppedAside(now))
		case m.due(now):
			f.Active++
			f.Candidates = append(f.Candidates, departure.Candidate{
				Name: name.String(), Lane: m.Lane, Priority: m.Priority, End: m.End, Since: m.From, Refused: m.refused, NeverRan: m.NeverRan,
			})
		default:
			f.Active++
			next = departure.Sooner(next, m.From)
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

// Publish tells the machines of a Cluster what was planned for them, and wakes those for
// whom that is news.
func (r *Roster) Publish(key client.ObjectKey, p departure.Plan, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range p.Admitted {
		r.say(key, a, Verdict{Granted: true, Lane: a.Lane, Cycle: now.UnixMilli()}, now)
	}
	for _, waiting := range [][]departure.Waiting{p.Deferred, p.Held} {
		for _, w := range waiting {
			r.say(key, w.Candidate, Verdict{Reason: w.Reason, Message: p.Explain(w)}, now)
		}
	}
}

// say is nothing to a machine of which something else was told meanwhile.
func (r *Roster) say(key client.ObjectKey, c departure.Candidate, v Verdict, now time.Time) {
	name := Named(c.Name)
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

// Clusters wakes the planner for a Cluster whose machines have changed.
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

// Wake wakes the planner for every Cluster, because something has changed that concerns all.
func (r *Roster) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.clusters {
		wake(r.planner, key)
	}
}

// Itself is the request of a controller of ScheduledMachines, which has none for an orphan.
func Itself(scheduled types.NamespacedName) ctrl.Request {
	if _, orphan := OrphanOf(scheduled); orphan {
		return ctrl.Request{}
	}
	return ctrl.Request{NamespacedName: scheduled}
}

// Machines wakes a controller when the planner says something else of a ScheduledMachine;
// request is what it is woken for; the zero value is nothing.
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
		return nil // Each has told something, and been woken by that before.
	})
}

// Named reads the name of a candidate.
func Named(s string) types.NamespacedName {
	for i := range len(s) {
		if s[i] == types.Separator {
			return types.NamespacedName{Namespace: s[:i], Name: s[i+1:]}
		}
	}
	return types.NamespacedName{Name: s}
}
