// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// Waits are waits of Cluster API for a Machine that is being deleted.
type Waits struct{ Drain, VolumeDetach bool }

// Record writes the departure record of a Machine that another client deletes, once.
func (a Action) Record(ctx context.Context, m *clusterv1.Machine) error {
	_, err := a.writeRecord(ctx, m, "")
	return err
}

func (a Action) writeRecord(ctx context.Context, m *clusterv1.Machine, id string) (sent bool, err error) {
	return a.edit(ctx, m, a.urgent(), func() { a.record(m, id) })
}

// urgent reports whether the departure is urgent.
func (i Intent) urgent() bool { return v1alpha1.Departure{Reason: i.Reason}.Urgent() }

// edit patches a Machine with a change. If the write is suppressed, m stays unchanged. A changed departure record
// requires that the Machine has not changed since it was read: a stale cache may hide a record. An urgent departure has
// no such condition.
func (a *Actuator) edit(ctx context.Context, m *clusterv1.Machine, urgent bool, change func()) (sent bool, err error) {
	before := m.DeepCopy()
	change()
	if urgent || m.Annotations[v1alpha1.DepartureAnnotation] == before.Annotations[v1alpha1.DepartureAnnotation] {
		sent, err = a.patch(ctx, m, before)
	} else {
		sent, err = a.patchLocked(ctx, m, before)
	}
	if IsSuppressed(err) {
		before.DeepCopyInto(m)
	}
	return sent, err
}

// RemoveHooks removes hooks of 5-Spot from a Machine that is being deleted, and makes Cluster API skip waits. It
// writes the departure record in the same patch.
func (a Action) RemoveHooks(ctx context.Context, m *clusterv1.Machine, skip Waits, hooks ...string) error {
	return a.carryOut(ctx, try{
		kind: a.kindOf(audit.Depart), verb: "let go", obj: m, says: strings.Join(hooks, " "), step: stepOf(hooks),
		shows: func(obj client.Object) bool {
			return !slices.ContainsFunc(hooks, func(key string) bool { _, held := obj.GetAnnotations()[key]; return held })
		},
		send: func(id string) (bool, error) {
			return a.edit(ctx, m, a.urgent(), func() {
				a.record(m, id)
				for _, key := range hooks {
					delete(m.Annotations, key)
				}
				if skip.Drain {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
				}
				if skip.VolumeDetach {
					metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")
				}
			})
		},
	})
}

// stepOf returns the names of the removed hooks, such as "/pre-drain".
func stepOf(hooks []string) string {
	var step strings.Builder
	for _, key := range hooks {
		name, _, _ := strings.Cut(key, ".")
		step.WriteString("/" + name)
	}
	return step.String()
}

// Depart starts a graceful departure: it writes the departure record and deletes the Machine. Cluster API then
// deletes the other two objects. Without a Machine, Depart deletes them itself.
func (a Action) Depart(ctx context.Context, c *children.Set) error {
	if c.Machine == nil {
		return a.DeleteNext(ctx, c, children.HonourHooks)
	}
	err := a.carryOut(ctx, try{
		kind: a.kindOf(audit.Depart), verb: remove, obj: c.Machine, shows: leaves,
		send: func(id string) (bool, error) {
			if sent, err := a.writeRecord(ctx, c.Machine, id); err != nil {
				return sent, err
			}
			return a.deleteLocked(ctx, c.Machine)
		},
	})
	return kinds.IgnoreNoObject(err)
}

// deleteLocked deletes a Machine, unless it has changed since it was read: its admission may have expired meanwhile.
func (a Action) deleteLocked(ctx context.Context, m *clusterv1.Machine) (sent bool, err error) {
	return a.deleteIf(ctx, m, client.Preconditions{UID: new(m.UID), ResourceVersion: new(m.ResourceVersion)})
}

// Expedite ends the waits of a departure. Cluster API may not reconcile a draining Machine for up to 20 s. So
// Expedite also deletes the infrastructure, even if the Machine cannot be patched, unless another owner's hook
// is set.
func (a Action) Expedite(ctx context.Context, c *children.Set) error {
	var err error
	if m := c.Machine; m != nil {
		err = kinds.IgnoreNoObject(a.carryOut(ctx, try{
			kind: a.kindOf(audit.Remove), verb: "expedite", obj: m, step: "/expedite", shows: skipsWaits,
			send: func(id string) (bool, error) { return a.expedite(ctx, m, id) },
		}))
	}
	return errors.Join(err, a.DeleteNext(ctx, c, children.HonourHooks))
}

// Remove removes the machine without drain or grace, also during a graceful departure. It patches the Machine
// first, so that Cluster API's deletion skips its waits. It deletes the infrastructure last, because providers
// clean up a host when that is deleted. See ADR 0004.
//
// Cluster API's webhooks handle patches of a Machine but not its deletion. If they are down, only the patch
// fails. gone reports that the Machine is being deleted or does not exist.
func (a Action) Remove(ctx context.Context, c *children.Set, hooks children.ForeignHookPolicy) (gone bool, err error) {
	if m := c.Machine; m != nil {
		err = kinds.IgnoreNoObject(a.carryOut(ctx, try{
			kind: a.kindOf(audit.Remove), verb: remove, obj: m, shows: skipsWaits,
			send: func(id string) (bool, error) {
				patched, err := a.expedite(ctx, m, id)
				deleted, refused := a.delete(ctx, m)
				gone = kinds.IgnoreNoObject(refused) == nil
				if kinds.NoObject(err) {
					err = nil
				}
				return patched || deleted, errors.Join(err, refused)
			},
		}))
		if !gone {
			return false, err
		}
	}
	return true, errors.Join(err, a.DeleteNext(ctx, c, hooks))
}

func (a Action) expedite(ctx context.Context, m *clusterv1.Machine, id string) (sent bool, err error) {
	return a.edit(ctx, m, a.urgent(), func() { a.record(m, id, children.Expedite(m)...) })
}

// DeleteNext deletes the object that a removal deletes after the Machine, see children.Set.NextToDelete. It does
// nothing if that object has to wait.
func (a Action) DeleteNext(ctx context.Context, c *children.Set, hooks children.ForeignHookPolicy) error {
	last := c.NextToDelete(hooks)
	if last == nil {
		return nil
	}
	t := try{kind: a.kindOf(audit.Remove), verb: remove, obj: last, shows: leaves, send: func(string) (bool, error) { return a.delete(ctx, last) }}
	if c.Machine != nil {
		t.id, t.step = a.recorded(c.Machine), "/"+last.GetKind()
	}
	return kinds.IgnoreNoObject(a.carryOut(ctx, t))
}

// record adds the departure record to m, with the waits that were skipped.
func (a Action) record(m *clusterv1.Machine, id string, skips ...string) {
	if id == "" {
		id = string(uuid.NewUUID())
	}
	d := v1alpha1.NewDeparture(a.Reason, a.At, id)
	d.Skips, d.Grace = skips, children.FormatGrace(a.Grace)
	if a.Lane != "" {
		d.Lane = a.Lane
	}
	children.Record(m, d)
}

// Request writes a request for a departure to a Machine: see children.Request. A Machine that has changed since it was
// read is a conflict. If the write is suppressed, m stays unchanged.
func (a *Actuator) Request(ctx context.Context, m *clusterv1.Machine, d v1alpha1.Departure, now time.Time) error {
	_, err := a.edit(ctx, m, false, func() { children.Request(m, d, now) })
	return err
}

// SetDeparture writes a departure record to a Machine, under the same conditions as Request. change, which may be nil,
// is applied to the Machine before that.
func (a *Actuator) SetDeparture(ctx context.Context, m *clusterv1.Machine, d v1alpha1.Departure, change func(*clusterv1.Machine)) error {
	_, err := a.edit(ctx, m, false, func() {
		if change != nil {
			change(m)
		}
		children.SetDeparture(m, d)
	})
	return err
}

// Withdraw removes the departure record, and the annotations that came with it, from a Machine that stays. A
// Machine that has changed since it was read is a conflict: it may be leaving. If the write is suppressed, m
// stays unchanged.
func (a *Actuator) Withdraw(ctx context.Context, m *clusterv1.Machine) error {
	_, err := a.edit(ctx, m, false, func() { children.Withdraw(m) })
	return err
}
