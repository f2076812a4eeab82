// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// skipWaits are the annotations that make Cluster API's machine controller skip
// what takes time, and keep a health check from remediating what is going anyway.
var skipWaits = []string{
	clusterv1.ExcludeNodeDrainingAnnotation,
	clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation,
	clusterv1.MachineSkipRemediationAnnotation,
}

// ourHooks are the deletion hooks by which Cluster API waits for us.
var ourHooks = []string{v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation}

// Children are the objects of one machine; nil where none is known.
type Children struct {
	Machine                   *clusterv1.Machine
	Bootstrap, Infrastructure *unstructured.Unstructured
	// InfrastructureUnknown says that nobody knows whether there is infrastructure.
	InfrastructureUnknown bool
}

// Hooks says what a removal does about the deletion hooks that others put on the
// Machine. The zero value honours them.
type Hooks string

const (
	// HonourHooks leaves the infrastructure to Cluster API while there is one.
	HonourHooks Hooks = ""
	// BypassHooks does not wait for them: the Machine object does, the box does not.
	BypassHooks Hooks = "Bypass"
)

// Removed reports whether Remove has nothing left to do but wait.
func (c Children) Removed(hooks Hooks) bool {
	if c.Machine == nil {
		rest := c.rest()
		return rest == nil || going(rest)
	}
	return c.Expedited() && (going(c.Infrastructure) || len(c.WaitsFor(hooks)) > 0)
}

// rest is what is to be deleted next of a machine without Machine, nil if nothing. The
// bootstrap config is the last to go, and not before the infrastructure is known to be
// gone: providers read it while they clean a host.
func (c Children) rest() *unstructured.Unstructured {
	switch {
	case c.Infrastructure != nil:
		return c.Infrastructure
	case c.InfrastructureUnknown:
		return nil
	default:
		return c.Bootstrap
	}
}

// WaitsFor returns the deletion hooks, in the order of their names, that keep a
// removal from deleting the infrastructure.
func (c Children) WaitsFor(hooks Hooks) []string {
	if c.Machine == nil || hooks == BypassHooks {
		return nil
	}
	var found []string
	for key := range c.Machine.Annotations {
		if slices.Contains(ourHooks, key) {
			continue
		}
		if strings.HasPrefix(key, clusterv1.PreDrainDeleteHookAnnotationPrefix) ||
			strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix) {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// Expedited reports whether nothing makes the Machine wait any more.
func (c Children) Expedited() bool {
	if c.Machine == nil {
		return true
	}
	for _, key := range skipWaits {
		if _, ok := c.Machine.Annotations[key]; !ok {
			return false
		}
	}
	for _, key := range ourHooks {
		if _, ok := c.Machine.Annotations[key]; ok {
			return false
		}
	}
	return !c.Machine.DeletionTimestamp.IsZero()
}

// Waits are waits of Cluster API for a Machine that is being deleted.
type Waits struct{ Drain, VolumeDetach bool }

// MarkLeaving writes down since when a Machine has been leaving, once.
func (a *Actuator) MarkLeaving(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	markLeaving(m)
	return a.Patch(ctx, m, before)
}

func markLeaving(m *clusterv1.Machine) {
	if _, marked := m.Annotations[v1alpha1.LeavingAnnotation]; !marked {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.LeavingAnnotation, m.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
}

// LetGo takes hooks of ours off a Machine that is being deleted, marks it as leaving,
// and has Cluster API skip waits, in one write.
func (a *Actuator) LetGo(ctx context.Context, m *clusterv1.Machine, skip Waits, hooks ...string) error {
	before := m.DeepCopy()
	markLeaving(m)
	for _, key := range hooks {
		delete(m.Annotations, key)
	}
	if skip.Drain {
		m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
	}
	if skip.VolumeDetach {
		m.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation] = ""
	}
	return a.Patch(ctx, m, before)
}

// Depart starts a graceful departure: the Machine's deletion, which is Cluster
// API's to carry out. Without a Machine nobody else deletes the other two.
func (a *Actuator) Depart(ctx context.Context, c Children) error {
	if c.Machine != nil {
		return a.Delete(ctx, c.Machine)
	}
	return a.deleteRest(ctx, c)
}

// Expedite ends the waiting of a departure. Cluster API looks at a draining
// Machine again up to 20 s later (its drain defers the next reconcile), so the
// infrastructure is deleted too, unless somebody else's hook asks to be waited
// for.
func (a *Actuator) Expedite(ctx context.Context, c Children) error {
	if c.Machine == nil {
		return a.deleteRest(ctx, c)
	}
	if err := a.skipWaits(ctx, c.Machine); err != nil {
		return err
	}
	if len(c.WaitsFor(HonourHooks)) > 0 || c.Infrastructure == nil {
		return nil
	}
	return a.Delete(ctx, c.Infrastructure)
}

// Remove takes the machine out without drain or grace, also in the middle of a
// graceful departure. The Machine is told to skip its waits first, so that
// deletion never begins with them, and the infrastructure is deleted last, once
// the Machine is going: providers that clean a host look for its deletion. See
// ADR 0004.
func (a *Actuator) Remove(ctx context.Context, c Children, hooks Hooks) error {
	if c.Machine == nil {
		return a.deleteRest(ctx, c)
	}
	if err := a.skipWaits(ctx, c.Machine); err != nil && !NoObject(err) {
		return err
	}
	if err := a.Delete(ctx, c.Machine); err != nil {
		return err
	}
	if c.Infrastructure == nil || len(c.WaitsFor(hooks)) > 0 {
		return nil
	}
	return a.Delete(ctx, c.Infrastructure)
}

func (a *Actuator) skipWaits(ctx context.Context, m *clusterv1.Machine) error {
	before := m.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	for _, key := range skipWaits {
		if _, ok := m.Annotations[key]; !ok {
			m.Annotations[key] = ""
		}
	}
	for _, key := range ourHooks {
		delete(m.Annotations, key)
	}
	return a.Patch(ctx, m, before)
}

func (a *Actuator) deleteRest(ctx context.Context, c Children) error {
	rest := c.rest()
	if rest == nil {
		return nil
	}
	return a.Delete(ctx, rest)
}

func going(obj client.Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok && u == nil {
		return true
	}
	return !obj.GetDeletionTimestamp().IsZero()
}
