// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
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

// Record writes down why a Machine leaves that somebody else deletes, once.
func (a Action) Record(ctx context.Context, m *clusterv1.Machine) error {
	_, err := a.writeRecord(ctx, m, "")
	return err
}

func (a Action) writeRecord(ctx context.Context, m *clusterv1.Machine, id string) (sent bool, err error) {
	return a.change(ctx, m, func() { a.record(m, id) })
}

// change patches a Machine. One that is not patched, because writes are suppressed, is as it
// was. A departure is put on record only on the Machine that was read: a cache that is late shows
// none where somebody has just written one. Whoever takes it at once does not wait for that.
func (a Action) change(ctx context.Context, m *clusterv1.Machine, change func()) (sent bool, err error) {
	before := m.DeepCopy()
	change()
	d, _ := children.DepartureOf(m, a.At)
	if !d.Urgent() && m.Annotations[v1alpha1.DepartureAnnotation] != before.Annotations[v1alpha1.DepartureAnnotation] {
		sent, err = a.patchLocked(ctx, m, before)
	} else {
		sent, err = a.patch(ctx, m, before)
	}
	if IsSuppressed(err) {
		before.DeepCopyInto(m)
	}
	return sent, err
}

// LetGo takes hooks of ours off a Machine that leaves, and has Cluster API skip waits, in one
// write with the record of its departure.
func (a Action) LetGo(ctx context.Context, m *clusterv1.Machine, skip Waits, hooks ...string) error {
	return a.carryOut(ctx, try{
		kind: a.kindOf(audit.Depart), verb: "let go", obj: m, says: strings.Join(hooks, " "), step: stepOf(hooks),
		shows: func(obj client.Object) bool {
			return !slices.ContainsFunc(hooks, func(key string) bool { _, held := obj.GetAnnotations()[key]; return held })
		},
		send: func(id string) (bool, error) {
			return a.change(ctx, m, func() {
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

// stepOf names the hooks that are taken off, such as "/pre-drain".
func stepOf(hooks []string) string {
	var step strings.Builder
	for _, key := range hooks {
		name, _, _ := strings.Cut(key, ".")
		step.WriteString("/" + name)
	}
	return step.String()
}

// Depart starts a graceful departure: the Machine's deletion, which is Cluster API's to
// carry out, once it is on record. Without a Machine nobody else deletes the other two.
func (a Action) Depart(ctx context.Context, c *children.Set) error {
	if c.Machine == nil {
		return a.DeleteLast(ctx, c, children.HonourHooks)
	}
	err := a.carryOut(ctx, try{
		kind: a.kindOf(audit.Depart), verb: remove, obj: c.Machine, shows: leaves,
		send: func(id string) (bool, error) {
			if sent, err := a.writeRecord(ctx, c.Machine, id); err != nil {
				return sent, err
			}
			return a.delete(ctx, c.Machine)
		},
	})
	return kinds.IgnoreNoObject(err)
}

// Expedite ends the waiting of a departure. Cluster API looks at a draining
// Machine again up to 20 s later (its drain defers the next reconcile), so the
// infrastructure is deleted too, unless somebody else's hook asks to be waited
// for; also when the Machine cannot be written to.
func (a Action) Expedite(ctx context.Context, c *children.Set) error {
	var err error
	if m := c.Machine; m != nil {
		err = kinds.IgnoreNoObject(a.carryOut(ctx, try{
			kind: a.kindOf(audit.Remove), verb: "expedite", obj: m, step: "/expedite", shows: rushes,
			send: func(id string) (bool, error) { return a.expedite(ctx, m, id) },
		}))
	}
	return errors.Join(err, a.DeleteLast(ctx, c, children.HonourHooks))
}

// Remove takes the machine out without drain or grace, also in the middle of a
// graceful departure. The Machine is told to skip its waits first, so that
// deletion never begins with them, and the infrastructure is deleted last, once
// the Machine is going: providers that clean a host look for its deletion. See
// ADR 0004.
//
// The webhooks of Cluster API are asked about patches of a Machine, and not about its
// deletion: while they do not answer the first is refused, and the rest is done all the
// same. gone says that the Machine is being deleted, or is gone.
func (a Action) Remove(ctx context.Context, c *children.Set, hooks children.Hooks) (gone bool, err error) {
	if m := c.Machine; m != nil {
		err = kinds.IgnoreNoObject(a.carryOut(ctx, try{
			kind: a.kindOf(audit.Remove), verb: remove, obj: m, shows: rushes,
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
	return true, errors.Join(err, a.DeleteLast(ctx, c, hooks))
}

func (a Action) expedite(ctx context.Context, m *clusterv1.Machine, id string) (sent bool, err error) {
	return a.change(ctx, m, func() { a.record(m, id, children.Expedite(m)...) })
}

// DeleteLast deletes what is last of a machine to go, once its Machine is going. It is left
// alone where it has to wait.
func (a Action) DeleteLast(ctx context.Context, c *children.Set, hooks children.Hooks) error {
	last := c.Last(hooks)
	if last == nil {
		return nil
	}
	t := try{kind: a.kindOf(audit.Remove), verb: remove, obj: last, shows: leaves, send: func(string) (bool, error) { return a.delete(ctx, last) }}
	if c.Machine != nil {
		t.id, t.step = a.recorded(c.Machine), "/"+last.GetKind()
	}
	return kinds.IgnoreNoObject(a.carryOut(ctx, t))
}

// record changes m to say why it leaves, and which waits were ended for that.
func (a Action) record(m *clusterv1.Machine, id string, skips ...string) {
	if id == "" {
		id = string(uuid.NewUUID())
	}
	d := v1alpha1.NewDeparture(a.Reason, a.At, id)
	d.Skips, d.Grace = skips, fmt.Sprintf("%ds", a.Grace/time.Second)
	if a.Lane != "" {
		d.Lane = a.Lane
	}
	children.Record(m, d)
}

// Withdraw takes the record of a departure off a Machine that stays after all, and the
// annotations that came with it. One that has changed since it was read is a conflict: it
// may be leaving. One that is not patched, because writes are suppressed, is as it was.
func (a *Actuator) Withdraw(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	children.Withdraw(m)
	err := a.PatchLocked(ctx, m, before)
	if IsSuppressed(err) {
		before.DeepCopyInto(m)
	}
	return err
}
