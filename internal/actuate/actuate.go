// SPDX-License-Identifier: Apache-2.0

// Package actuate writes to API servers. It is the only package with a writing client, for the management
// cluster and for workload clusters. Writes that make a machine join or leave belong to an Intent, and each of them
// becomes a line of the audit log.
//
// Every write is idempotent and identifies its object by UID or resourceVersion. Deleting an object that does
// not exist is a success. In dry run, the transport of a Gate suppresses all writes. During an actuation pause, it
// permits only the status of ScheduledMachines. The package makes no decisions.
package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/paused"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// An Actuator writes to one API server. It is safe for concurrent use.
type Actuator struct {
	gate *Gate
	// given is the client of the constructor. client is the same with a field manager. Without a field manager,
	// patches would have the name of the program as their manager, as Cluster API's controllers do.
	given, client client.Client
	// remote reports that it writes to a workload cluster.
	remote bool
	// intent is why it writes. It is nil if its writes have no lines in the audit log.
	intent *Intent
}

// New returns an Actuator that writes with c as the controllers' field manager.
func New(c client.Client) *Actuator { return NewGated(new(Gate), c) }

// NewGated returns an Actuator like New does, for a client whose requests go through g.Transport.
func NewGated(g *Gate, c client.Client) *Actuator {
	return (&Actuator{gate: g, given: c}).As(v1alpha1.FieldManager)
}

// As returns an Actuator that writes as another field manager.
func (a *Actuator) As(owner string) *Actuator {
	as := *a
	as.client = client.WithFieldOwner(a.given, owner)
	return &as
}

// Suppresses reports whether writes are suppressed.
func (a *Actuator) Suppresses() bool { return a.gate.Suppresses() }

// ActuationPaused reports whether actuation is paused. Statuses report a pause, but not a dry run.
func (a *Actuator) ActuationPaused() bool { return a.gate.Paused }

// done records a write of an Action, and returns its error with what was done to which object.
func (a *Actuator) done(ctx context.Context, doing string, obj client.Object, err error) error {
	if a.intent != nil {
		a.record(ctx, doing, obj, err)
	}
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", doing, kind(obj), obj.GetName(), err)
	}
	return nil
}

// Create creates obj. If an object of that name exists, the error is AlreadyExists. obj is updated from the
// response. An Action rejects a response that is not the object that was sent.
func (a *Actuator) Create(ctx context.Context, obj client.Object) error {
	sent := maps.Clone(obj.GetLabels())
	err := a.client.Create(ctx, obj)
	return a.done(ctx, "creating", obj, a.acknowledged(obj, sent, err))
}

// Apply applies obj, which may exist. A field that another manager owns is a conflict, unless client.ForceOwnership is
// given: then obj must belong to 5-Spot. obj is updated from the response. An Action rejects a response that is not the
// object that was sent.
func (a *Actuator) Apply(ctx context.Context, obj *unstructured.Unstructured, opts ...client.ApplyOption) error {
	sent := maps.Clone(obj.GetLabels())
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), opts...)
	return a.done(ctx, "applying", obj, a.acknowledged(obj, sent, err))
}

// Replace replaces the object with this UID and resourceVersion. A field that obj lacks is removed or gets its
// default. obj is updated from the response.
func (a *Actuator) Replace(ctx context.Context, obj client.Object) error {
	return a.done(ctx, "replacing", obj, a.client.Update(ctx, obj))
}

// Check returns the error with which the API server would reject the creation of obj under another name. It
// creates nothing.
func (a *Actuator) Check(ctx context.Context, obj *unstructured.Unstructured) error {
	probe := obj.DeepCopy()
	probe.SetGenerateName(obj.GetName() + "-")
	probe.SetName("")
	if err := a.client.Create(ctx, probe, client.DryRunAll); err != nil {
		return fmt.Errorf("checking %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return nil
}

// Delete deletes obj. It does nothing if obj is being deleted or does not exist. Another object of the same
// name is a conflict.
func (a *Actuator) Delete(ctx context.Context, obj client.Object) error {
	return a.deleteIf(ctx, obj, client.Preconditions{UID: new(obj.GetUID())})
}

// deleteIf is Delete with preconditions. An object that does not meet them is a conflict.
func (a *Actuator) deleteIf(ctx context.Context, obj client.Object, conditions client.Preconditions) error {
	if !obj.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return kinds.IgnoreNoObject(a.done(ctx, "deleting", obj, a.client.Delete(ctx, obj, conditions)))
}

// Gone reports whether err means that the object or its kind does not exist. It is for kinds that a feature may
// remove, not for the kinds of a machine.
func Gone(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

// Patch sends the difference between before and obj, if there is one. Another object of the same name is a
// conflict. obj is updated from the response.
func (a *Actuator) Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error {
	if same(obj, before) {
		return nil
	}
	return a.done(ctx, "patching", obj, asConflict(obj, a.client.Patch(ctx, obj, byUID(before), opts...)))
}

// byUID returns a merge patch that contains the UID. The API server rejects it for another object of the same name,
// because it would change the UID of that object.
func byUID(before client.Object) client.Patch {
	if named, ok := before.DeepCopyObject().(client.Object); ok {
		named.SetUID("")
		before = named
	}
	return client.MergeFrom(before)
}

// asConflict returns a conflict for the error with which an API server rejects a changed UID.
func asConflict(obj client.Object, err error) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		return err
	}
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Field == "metadata.uid" {
			about := status.ErrStatus.Details
			return apierrors.NewConflict(schema.GroupResource{Group: about.Group, Resource: about.Kind}, obj.GetName(), err)
		}
	}
	return err
}

// PatchLocked is Patch for changes to lists, which a merge patch replaces as a whole. It fails with a conflict
// if the object has changed since it was read.
func (a *Actuator) PatchLocked(ctx context.Context, obj, before client.Object) error {
	if same(obj, before) {
		return nil
	}
	return a.done(ctx, "patching", obj, a.client.Patch(ctx, obj, locked(before)))
}

// PatchStatus patches the status of obj if obj differs from before. The optimistic lock prevents an older list
// of conditions from replacing a newer one.
func (a *Actuator) PatchStatus(ctx context.Context, obj, before client.Object) error {
	if same(obj, before) {
		return nil
	}
	if err := a.client.Status().Patch(ctx, obj, locked(before)); err != nil {
		return fmt.Errorf("patching status: %w", err)
	}
	return nil
}

// same reports whether there is nothing to send. Most reconciles change nothing, and the comparison costs a
// tenth of computing the patch.
func same(obj, before client.Object) bool {
	return equality.Semantic.DeepEqual(obj, before)
}

func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// Paused updates the Paused condition of obj, as Cluster API's own controllers do. It reports whether it wrote:
// obj is stale then.
func (a *Actuator) Paused(ctx context.Context, cluster *clusterv1.Cluster, obj paused.ConditionSetter) (bool, error) {
	_, wrote, err := paused.EnsurePausedCondition(ctx, a.client, cluster, obj)
	if err != nil {
		return false, fmt.Errorf("reporting pause: %w", err)
	}
	return wrote, nil
}

func kind(obj client.Object) string {
	if k := obj.GetObjectKind().GroupVersionKind().Kind; k != "" {
		return k
	}
	return reflect.Indirect(reflect.ValueOf(obj)).Type().Name() // a type of the API has the name of its kind
}
