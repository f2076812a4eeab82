// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// Waits are waits of Cluster API for a Machine that is being deleted.
type Waits struct{ Drain, VolumeDetach bool }

// Record writes down why a Machine leaves that somebody else deletes, once.
func (a Action) Record(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	a.record(m)
	return a.Patch(ctx, m, before)
}

// LetGo takes hooks of ours off a Machine that leaves, and has Cluster API skip waits, in one
// write with the record of its departure.
func (a Action) LetGo(ctx context.Context, m *clusterv1.Machine, skip Waits, hooks ...string) error {
	before := m.DeepCopy()
	a.record(m)
	for _, key := range hooks {
		delete(m.Annotations, key)
	}
	if skip.Drain {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeNodeDrainingAnnotation, "")
	}
	if skip.VolumeDetach {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation, "")
	}
	return a.Patch(ctx, m, before)
}

// Depart starts a graceful departure: the Machine's deletion, which is Cluster API's to
// carry out, once it is on record. Without a Machine nobody else deletes the other two.
func (a Action) Depart(ctx context.Context, c *children.Set) error {
	if c.Machine == nil {
		return a.deleteLast(ctx, c, children.HonourHooks)
	}
	if err := a.Record(ctx, c.Machine); err != nil {
		return err
	}
	return a.Delete(ctx, c.Machine)
}

// Expedite ends the waiting of a departure. Cluster API looks at a draining
// Machine again up to 20 s later (its drain defers the next reconcile), so the
// infrastructure is deleted too, unless somebody else's hook asks to be waited
// for; also when the Machine cannot be written to.
func (a Action) Expedite(ctx context.Context, c *children.Set) error {
	var err error
	if c.Machine != nil {
		err = kinds.IgnoreNoObject(a.expedite(ctx, c.Machine))
	}
	return errors.Join(err, a.deleteLast(ctx, c, children.HonourHooks))
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
	if c.Machine != nil {
		err = kinds.IgnoreNoObject(a.expedite(ctx, c.Machine))
		if refused := a.Delete(ctx, c.Machine); refused != nil {
			return false, errors.Join(err, refused)
		}
	}
	return true, errors.Join(err, a.deleteLast(ctx, c, hooks))
}

func (a Action) expedite(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	a.record(m, children.Expedite(m)...)
	return a.Patch(ctx, m, before)
}

func (a Action) deleteLast(ctx context.Context, c *children.Set, hooks children.Hooks) error {
	last := c.Last(hooks)
	if last == nil {
		return nil
	}
	return a.Delete(ctx, last)
}

// record changes m to say why it leaves, and which waits were ended for that.
func (a Action) record(m *clusterv1.Machine, skips ...string) {
	d := v1alpha1.NewDeparture(a.Reason, a.At, string(uuid.NewUUID()))
	d.Skips = skips
	children.Record(m, d)
}

// Withdraw takes the record of a departure off a Machine that stays after all, and the
// annotations that came with it.
func (a *Actuator) Withdraw(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	children.Withdraw(m)
	return a.Patch(ctx, m, before)
}
