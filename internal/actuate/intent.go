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
	// Reason is why a machine leaves. It is written on the Machine. Empty means that the machine does not leave, or that
	// the reason is already recorded. The audit log has the recorded reason, unless one of the two is exempt.
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
	// By is the text of the request that the Intent serves.
	By string
	// Grace is the time that a graceful departure may take.
	Grace time.Duration

	// graceful is the kind of a write in a departure that is not urgent. Empty means audit.Remove.
	graceful audit.Kind
	// leaving is the Machine whose departure record applies to writes to other objects. It may be nil.
	leaving *clusterv1.Machine
	// step is a suffix of the action id, for a write that does not start a departure.
	step string
}

// OnNode returns the Intent for writes to the Node of a Machine that leaves, or to its pods.
func OnNode(m *clusterv1.Machine, why string, at time.Time) Intent {
	return Intent{
		Kind: audit.NodePatch, Why: why, At: at, Machine: client.ObjectKey{Namespace: m.Namespace, Name: cmp.Or(children.ParentOf(m), m.Name)},
		Cluster: client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName},
	}
}

// An Action is an Actuator that writes for an Intent. Each write becomes a line of the audit log.
type Action struct{ *Actuator }

// For returns the Action for i.
func (a *Actuator) For(i Intent) Action {
	as := *a
	as.intent = &i
	return Action{&as}
}

// part returns an Action for a part of a: see Intent.graceful and Intent.step.
func (a Action) part(graceful audit.Kind, step string) Action {
	i := *a.intent
	i.graceful, i.step = graceful, step
	return a.For(i)
}

// kind returns the audit kind of a write.
func (i *Intent) kind() audit.Kind {
	switch {
	case i.Kind != "":
		return i.Kind
	case i.Reason == v1alpha1.KilledByPerson:
		return audit.KillSwitch
	case i.Reason == v1alpha1.ReclaimedByOwner:
		return audit.EmergencyRemove
	default:
		return cmp.Or(i.graceful, audit.Remove)
	}
}

// record writes the audit line of a write to obj.
func (a *Actuator) record(ctx context.Context, doing string, obj client.Object, err error) {
	line := a.intent.line(obj)
	line.Outcome = a.outcomeOf(err)
	a.gate.record(ctx, line, doing+" "+kind(obj)+" "+obj.GetName())
}

// line returns the audit line of a write to obj without its outcome.
func (i *Intent) line(obj client.Object) audit.Line {
	line := audit.Line{
		Time: i.At, Kind: i.kind(), Machine: text(i.Machine), Cluster: text(i.Cluster),
		Reason: cmp.Or(string(i.Reason), i.Why), UID: string(obj.GetUID()), By: i.By,
	}
	if line.Kind == audit.Depart {
		line.GraceSeconds = int64(i.Grace / time.Second)
	}
	if i.Kind != "" {
		return line
	}
	line.Lane = string(cmp.Or(i.Lane, i.Reason.Lane()))
	m, ok := obj.(*clusterv1.Machine)
	if !ok {
		m = i.leaving
	}
	if m == nil {
		return line
	}
	d, _ := children.DepartureOf(m, i.At)
	if d.ActionID != "" {
		line.ActionID = d.ActionID + i.step
	}
	underWay := d.ActionID != "" && !d.Urgent() && i.Reason.Lane() != v1alpha1.ExemptLane
	if i.Reason == "" || underWay || i.Reason == d.Reason {
		line.Reason, line.Lane, line.Cycle = string(d.Reason), string(d.Lane), d.Cycle
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
// action. doing is the action as a gerund, such as "deleting". It is for operations with other effects than
// writes of an Action, which check this themselves.
func (a Action) Permit(ctx context.Context, doing string, obj client.Object) error {
	if !a.gate.Suppresses() {
		return nil
	}
	return a.part(audit.Depart, "").done(ctx, doing, obj, a.gate.refusal())
}
