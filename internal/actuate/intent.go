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

// An Intent is what 5-Spot does to a machine, and why.
type Intent struct {
	// Reason is why a machine leaves. It is written on the Machine. Empty means that the machine does not
	// leave, or that the reason is already recorded.
	Reason v1alpha1.DepartureReason
	// Lane is the lane of the departure. It is written on the Machine. Empty means the default lane of Reason.
	Lane v1alpha1.DepartureLane
	// At is now, by the clock that measures the budget of the departure.
	At time.Time

	// Kind is audit.Join or audit.NodePatch, empty for a departure.
	Kind audit.Kind
	// Why is the reason of an Intent that is not a departure.
	Why string
	// Machine is the ScheduledMachine, or a Machine without one. Zero means all machines of Cluster. Cluster is
	// the Cluster.
	Machine, Cluster client.ObjectKey
	// Trigger distinguishes the intention from an earlier one with the same kind and reason, for example by an
	// instant.
	Trigger string
	// By is the text of the request that the Intent serves. It does not distinguish intentions.
	By string
	// Grace is the time that a graceful departure may take.
	Grace time.Duration
}

// OnNode returns the Intent for writes to the Node of a Machine that leaves, or to its pods.
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

// An Action is an Actuator that writes for an Intent. Each try of a write becomes a line of the audit log.
type Action struct {
	*Actuator
	Intent
}

// For returns the Action for i.
func (a *Actuator) For(i Intent) Action { return Action{a, i} }

// kindOf returns the audit kind of a write. graceful is the kind in a departure that is not urgent.
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

// A try is one write of an Action, or several writes to one object that belong together.
type try struct {
	kind audit.Kind
	verb string
	obj  client.Object
	// says is the content of the write, if that distinguishes the intention.
	says string
	// id is the id of the departure. Empty means the id recorded on obj, or a new one.
	id string
	// step is a suffix of the id, for a write that does not start a departure.
	step string
	// send sends the write with an id. sent reports whether a request was necessary.
	send func(id string) (sent bool, err error)
	// shows reports whether obj shows that the try succeeded. It is nil if obj cannot show that.
	shows func(obj client.Object) bool
}

// exists, leaves and skipsWaits are the values of shows for creations, deletions and removals.
func exists(client.Object) bool     { return true }
func leaves(obj client.Object) bool { return !obj.GetDeletionTimestamp().IsZero() }

// skipsWaits also requires that the Machine waits for nothing, because another client may have deleted it.
func skipsWaits(obj client.Object) bool {
	m, ok := obj.(*clusterv1.Machine)
	return ok && (&children.Set{Machine: m}).Expedited()
}

// carryOut executes t and records its outcome.
func (a Action) carryOut(ctx context.Context, t try) error {
	at := target{a.of(), t.verb, kind(t.obj), t.obj.GetName(), a.remote, t.kind}
	want := openAction{
		id: cmp.Or(t.id, a.recorded(t.obj)), shows: t.shows,
		intention: intentKey{string(a.Reason), a.Why, a.Trigger, string(t.obj.GetUID()), t.says},
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

// of returns the key of the actions: the machine, or all machines of the Cluster.
func (a Action) of() client.ObjectKey {
	if a.Machine.Name != "" {
		return a.Machine
	}
	return client.ObjectKey{Namespace: "Cluster/" + a.Cluster.Namespace, Name: a.Cluster.Name}
}

// recorded returns the id in the departure record of a Machine. It is empty without a record and for an Intent
// that is not a departure.
func (a Action) recorded(obj client.Object) string {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || m == nil || a.Kind != "" {
		return ""
	}
	d, _ := children.DepartureOf(m, a.At)
	return d.ActionID
}

// line returns the audit line of a try without its outcome.
func (a Action) line(t try) audit.Line {
	reason, lane, cycle := a.Reason, a.Lane, int64(0)
	if m, ok := t.obj.(*clusterv1.Machine); ok && a.Kind == "" {
		if d, _ := children.DepartureOf(m, a.At); reason == "" || reason == d.Reason {
			reason, lane, cycle = d.Reason, d.Lane, d.Cycle
		}
	}
	line := audit.Line{
		Time: a.At, Cycle: cycle, Kind: t.kind, Machine: text(a.Machine), Cluster: text(a.Cluster),
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

// text formats a key, empty for a key without a name.
func text(key client.ObjectKey) string {
	if key.Name == "" {
		return ""
	}
	return key.String()
}

// Permit returns an error that IsSuppressed reports if writes are suppressed, and records the suppressed
// action. It is for operations with other effects than writes of an Action, which check this themselves.
func (a Action) Permit(ctx context.Context, obj client.Object) error {
	if !a.gate.Suppresses() {
		return nil
	}
	return a.carryOut(ctx, try{kind: a.kindOf(audit.Depart), verb: remove, obj: obj, send: func(string) (bool, error) {
		return true, a.gate.refusal()
	}})
}
