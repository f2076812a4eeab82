// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// An Intent is what is to be done to a machine, and why.
type Intent struct {
	// Reason is why a machine leaves, and is written on the Machine. Empty means that it does
	// not leave, or that why is on record.
	Reason v1alpha1.DepartureReason
	// Lane is, too; empty is that of Reason.
	Lane v1alpha1.DepartureLane
	// At is now, by the clock that the departure's budget is measured by.
	At time.Time

	// Kind is audit.Join or audit.NodePatch, empty for a departure.
	Kind audit.Kind
	// Why is the reason of what is no departure.
	Why string
	// Machine is the ScheduledMachine, or a Machine that belongs to none; zero is all of
	// Cluster. Cluster is its Cluster.
	Machine, Cluster client.ObjectKey
	// Trigger tells the intention from an earlier one of the same kind and reason, such as by
	// the instant that it follows from.
	Trigger string
	// By is the text of the request that the Intent serves. It is no part of the intention: two texts do not make two
	// actions.
	By string
	// Grace is what a graceful departure may take.
	Grace time.Duration
	// Cycle is the run of the planner that admitted the departure; zero if none did.
	Cycle int64
}

// OnNode is the Intent of what is done to the Node of a Machine that leaves, or to pods there.
func OnNode(m *clusterv1.Machine, why string, at time.Time) Intent {
	i := Intent{
		Kind: audit.NodePatch, Why: why, At: at, Machine: client.ObjectKeyFromObject(m),
		Cluster: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName},
	}
	if name := children.ParentOf(m); name != "" {
		i.Machine.Name = name
	}
	return i
}

// An Action is an Actuator that writes for an Intent: what it writes is told in the audit
// log, one line for each try.
type Action struct {
	*Actuator
	Intent
}

// For returns the Action for i.
func (a *Actuator) For(i Intent) Action { return Action{a, i} }

// kindOf is the kind of a step of the Action: in a departure that nobody takes at once, the
// one given.
func (a Action) kindOf(graceful audit.Kind) audit.Kind {
	switch {
	case a.Kind != "":
		return a.Kind
	case a.Reason == v1alpha1.KilledByPerson:
		return audit.KillSwitch
	case a.Reason == v1alpha1.ReclaimedByOwner:
		return audit.EmergencyRemove
	default:
		return graceful
	}
}

// A try is one write of an Action, or several to one object that mean nothing by
// themselves.
type try struct {
	kind audit.Kind
	verb string
	obj  client.Object
	// says is what is written, where that is part of the intention.
	says string
	// id is that of the departure that it belongs to; empty is that of obj, or a new one.
	id string
	// step is added to the id, for what is not the beginning of a departure.
	step string
	// send does it with an id. It reports whether there was anything to send.
	send func(id string) (sent bool, err error)
	// shows reports whether obj is as the try leaves it. Where it is nil, nothing of obj shows that.
	shows func(obj client.Object) bool
}

// exists, leaves and rushes are what creations, deletions and removals show.
func exists(client.Object) bool     { return true }
func leaves(obj client.Object) bool { return !obj.GetDeletionTimestamp().IsZero() }

// rushes also asks whether the Machine waits for anything: somebody else may have deleted it.
func rushes(obj client.Object) bool {
	m, ok := obj.(*clusterv1.Machine)
	return ok && (&children.Set{Machine: m}).Expedited()
}

// carryOut tries t, and tells what became of it.
func (a Action) carryOut(ctx context.Context, t try) error {
	at := target{a.of(), t.verb, kind(t.obj), t.obj.GetName(), a.remote, t.kind}
	want := action{
		id: cmp.Or(t.id, a.recorded(t.obj)), shows: t.shows,
		intention: intention{string(a.Reason), a.Why, a.Trigger, string(t.obj.GetUID()), t.says},
	}
	if a.gate.Suppresses() {
		_, err := t.send(want.id)
		if IsSuppressed(err) {
			a.gate.suppress(ctx, at, a.line(t), want, t.step)
		}
		return err
	}
	id, givenUp := a.gate.tries.begin(at, want)
	a.closed(givenUp, a.At)
	sent, err := t.send(id)
	if !sent {
		a.gate.tries.skip(at)
		return err
	}
	line := a.line(t)
	line.ActionID, line.Outcome = cmp.Or(t.id, a.recorded(t.obj), id)+t.step, a.outcomeOf(err)
	a.gate.end(at, id, line)
	return err
}

// of is whose actions those of a are: the machine's, or those of all of its Cluster.
func (a Action) of() client.ObjectKey {
	if a.Machine.Name != "" {
		return a.Machine
	}
	return client.ObjectKey{Namespace: "Cluster/" + a.Cluster.Namespace, Name: a.Cluster.Name}
}

// recorded is the id of the departure that a Machine has on record, empty if it has none,
// or if nothing departs.
func (a Action) recorded(obj client.Object) string {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || m == nil || a.Kind != "" {
		return ""
	}
	d, _ := children.DepartureOf(m, a.At)
	return d.ActionID
}

// line is what is told of a try, but for what became of it.
func (a Action) line(t try) audit.Line {
	reason, lane := a.Reason, a.Lane
	if m, ok := t.obj.(*clusterv1.Machine); ok && a.Kind == "" {
		if d, _ := children.DepartureOf(m, a.At); reason == "" || reason == d.Reason {
			reason, lane = d.Reason, d.Lane
		}
	}
	line := audit.Line{
		Time: a.At, Cycle: a.Cycle, Kind: t.kind, Machine: text(a.Machine), Cluster: text(a.Cluster),
		Reason: cmp.Or(string(reason), a.Why), UID: string(t.obj.GetUID()), By: a.By,
	}
	if a.Kind == "" {
		line.Lane = string(cmp.Or(lane, reason.Lane()))
	}
	if t.kind == audit.Depart {
		line.GraceSeconds = int64(a.Grace / time.Second)
	}
	return line
}

// text is a key for people, empty for none.
func text(key client.ObjectKey) string {
	if key.Name == "" {
		return ""
	}
	return key.String()
}

// Permit returns an error that IsSuppressed reports where nothing of the Intent may be
// carried out, and tells of it. It is for what takes more than writes of an Action, which
// ask for themselves.
func (a Action) Permit(ctx context.Context, obj client.Object) error {
	if !a.gate.Suppresses() {
		return nil
	}
	return a.carryOut(ctx, try{kind: a.kindOf(audit.Depart), verb: remove, obj: obj, send: func(string) (bool, error) {
		return true, a.gate.refusal()
	}})
}
