// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"errors"
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
	return a.part(audit.Depart, "").change(ctx, m, func(*clusterv1.Machine) []string { return nil })
}

// change patches a Machine, and adds the departure record. mutate changes the Machine, and returns the annotations that
// make Cluster API skip waits. A new departure record requires that the Machine has not changed since it was read: a
// stale cache may hide a record. An urgent departure has no such condition.
func (a Action) change(ctx context.Context, m *clusterv1.Machine, mutate func(*clusterv1.Machine) (skips []string)) error {
	was := m.Annotations[v1alpha1.DepartureAnnotation]
	return a.edit(ctx, m, func() (locked bool) {
		d := v1alpha1.NewDeparture(a.intent.Reason, a.intent.At, string(uuid.NewUUID()))
		d.Lane, d.Skips, d.Grace = cmp.Or(a.intent.Lane, d.Lane), mutate(m), children.FormatGrace(a.intent.Grace)
		children.Record(m, d)
		d, _ = children.DepartureOf(m, a.intent.At)
		return !d.Urgent() && m.Annotations[v1alpha1.DepartureAnnotation] != was
	})
}

// RemoveHooks removes hooks of 5-Spot from a Machine that is being deleted, and makes Cluster API skip waits. It
// writes the departure record in the same patch.
func (a Action) RemoveHooks(ctx context.Context, m *clusterv1.Machine, skip Waits, hooks ...string) error {
	return a.part(audit.Depart, stepOf(hooks)).change(ctx, m, func(m *clusterv1.Machine) []string {
		for _, key := range hooks {
			delete(m.Annotations, key)
		}
		if skip.Drain {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
		}
		if skip.VolumeDetach {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")
		}
		return nil
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
	m := c.Machine
	if m == nil {
		return a.DeleteNext(ctx, c, children.HonourHooks)
	}
	err := a.Record(ctx, m)
	if err != nil {
		return kinds.IgnoreNoObject(err)
	}
	// A Machine that has changed since it was read stays: its admission may have expired.
	return a.part(audit.Depart, "").deleteIf(ctx, m, client.Preconditions{UID: new(m.UID), ResourceVersion: new(m.ResourceVersion)})
}

// Expedite ends the waits of a departure. Cluster API may not reconcile a draining Machine for up to 20 s. So
// Expedite also deletes the infrastructure, even if the Machine cannot be patched, unless another owner's hook
// is set.
func (a Action) Expedite(ctx context.Context, c *children.Set) error {
	var err error
	if c.Machine != nil {
		err = a.part(audit.Remove, "/expedite").expedite(ctx, c.Machine)
	}
	return errors.Join(err, a.DeleteNext(ctx, c, children.HonourHooks))
}

// Remove removes the machine without drain or grace, also during a graceful departure. It patches the Machine
// first, so that Cluster API's deletion skips its waits. It deletes the infrastructure last, because providers
// clean up a host when that is deleted. See ADR 0004.
//
// Cluster API's webhooks handle patches of a Machine but not its deletion. If they are down, only the patch
// fails, after WriteTimeout at most. gone reports that the Machine is being deleted or does not exist.
func (a Action) Remove(ctx context.Context, c *children.Set, hooks children.ForeignHookPolicy) (gone bool, err error) {
	if c.Machine != nil {
		err = a.expedite(ctx, c.Machine)
		if refused := a.Delete(ctx, c.Machine); refused != nil {
			return false, errors.Join(err, refused)
		}
	}
	return true, errors.Join(err, a.DeleteNext(ctx, c, hooks))
}

// WriteTimeout bounds a write after which the same reconcile has more to do within workers.Deadline. It is longer than
// the ten seconds that an API server waits for an admission webhook by default: a shorter one would cancel every try.
const WriteTimeout = 12 * time.Second

// expedite makes Cluster API skip the waits of a Machine. A missing Machine is no error.
func (a Action) expedite(ctx context.Context, m *clusterv1.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	return kinds.IgnoreNoObject(a.change(ctx, m, children.Expedite))
}

// DeleteNext deletes the object that a removal deletes after the Machine, see children.Set.NextToDelete. It does
// nothing if that object has to wait.
func (a Action) DeleteNext(ctx context.Context, c *children.Set, hooks children.ForeignHookPolicy) error {
	last := c.NextToDelete(hooks)
	if last == nil {
		return nil
	}
	a = a.part(audit.Remove, "/"+last.GetKind())
	a.intent.leaving = c.Machine
	return a.Delete(ctx, last)
}

// EditLocked patches a Machine with a change. A Machine that has changed since it was read is a conflict: it may be
// leaving. If the write is suppressed, m stays unchanged.
func (a *Actuator) EditLocked(ctx context.Context, m *clusterv1.Machine, change func(*clusterv1.Machine)) error {
	return a.edit(ctx, m, func() (locked bool) {
		change(m)
		return true
	})
}

// edit patches a Machine with a change. change returns whether the Machine must not have changed since it was read. If
// the write is suppressed, m stays unchanged.
func (a *Actuator) edit(ctx context.Context, m *clusterv1.Machine, change func() (locked bool)) (err error) {
	before := m.DeepCopy()
	if change() {
		err = a.PatchLocked(ctx, m, before)
	} else {
		err = a.Patch(ctx, m, before)
	}
	if IsSuppressed(err) {
		before.DeepCopyInto(m)
	}
	return err
}
