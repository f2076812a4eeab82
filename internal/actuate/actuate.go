// SPDX-License-Identifier: Apache-2.0

// Package actuate answers one question: how is a decision carried out on the API
// server? It is the only package with a client that writes, to the management cluster
// and to workload clusters. What makes a machine join or leave is written for an Intent.
// Every write is idempotent, names the object it means by UID or resourceVersion, and
// counts the deletion of an object that is already gone as success. It decides nothing.
package actuate

import (
	"context"
	"errors"
	"fmt"
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

// An Actuator writes to one API server, if its Gate lets it. It is safe for concurrent use.
type Actuator struct {
	gate *Gate
	// given is what it was made with, and client the same with a field manager. Without
	// one, patches would be of a manager named after the program, as those of Cluster
	// API's own controllers are.
	given, client client.Client
	// remote says that it is that of a workload cluster.
	remote bool
}

// New returns an Actuator that writes with c, as the controllers' field manager.
func New(c client.Client) *Actuator { return Behind(new(Gate), c) }

// Behind is New for an Actuator whose writes g may suppress.
func Behind(g *Gate, c client.Client) *Actuator {
	if g.Suppresses() {
		c = suppressing{Reader: c, about: c, gate: g}
	}
	return (&Actuator{gate: g, given: c}).As(v1alpha1.FieldManager)
}

// As returns an Actuator that writes as another field manager.
func (a *Actuator) As(owner string) *Actuator {
	as := *a
	as.client = client.WithFieldOwner(a.given, owner)
	return &as
}

// Suppresses reports whether nothing that the Actuator is told to do is carried out.
func (a *Actuator) Suppresses() bool { return a.gate.Suppresses() }

// ActuationPaused reports whether that is because actuation is paused, which people are told.
func (a *Actuator) ActuationPaused() bool { return a.gate.Paused }

// Create creates obj. One of that name that exists is an AlreadyExists error and
// not touched. obj becomes what the server answered.
func (a *Actuator) Create(ctx context.Context, obj client.Object) error {
	if err := a.client.Create(ctx, obj); err != nil {
		return fmt.Errorf("creating %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return nil
}

// Apply applies obj, which is not known to exist: fields that another manager set
// are a conflict, never overwritten. obj becomes what the server answered.
func (a *Actuator) Apply(ctx context.Context, obj *unstructured.Unstructured) error {
	return a.apply(ctx, obj)
}

// Update applies obj, which must be ours, and takes back the fields it names.
// obj becomes what the server answered.
func (a *Actuator) Update(ctx context.Context, obj *unstructured.Unstructured) error {
	return a.apply(ctx, obj, client.ForceOwnership)
}

func (a *Actuator) apply(ctx context.Context, obj *unstructured.Unstructured, opts ...client.ApplyOption) error {
	if err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(obj), opts...); err != nil {
		return fmt.Errorf("applying %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return nil
}

// Replace writes all of obj over the object that it names by UID and resourceVersion. A field that
// obj lacks is removed or gets its default. obj becomes what the server answered.
func (a *Actuator) Replace(ctx context.Context, obj client.Object) error {
	if err := a.client.Update(ctx, obj); err != nil {
		return fmt.Errorf("replacing %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return nil
}

// Check returns the error with which the API server would refuse to create obj under another name.
// Nothing is created.
func (a *Actuator) Check(ctx context.Context, obj *unstructured.Unstructured) error {
	probe := obj.DeepCopy()
	probe.SetGenerateName(obj.GetName() + "-")
	probe.SetName("")
	if err := a.client.Create(ctx, probe, client.DryRunAll); err != nil {
		return fmt.Errorf("checking %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return nil
}

// Delete deletes exactly this obj. One that is being deleted already is left
// alone, and another of the same name is a conflict.
func (a *Actuator) Delete(ctx context.Context, obj client.Object) error {
	_, err := a.delete(ctx, obj)
	return kinds.IgnoreNoObject(err)
}

// delete is Delete, and says whether there was anything to send. That there is no such
// object is an error.
func (a *Actuator) delete(ctx context.Context, obj client.Object) (sent bool, err error) {
	if !obj.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	if err := a.client.Delete(ctx, obj, client.Preconditions{UID: new(obj.GetUID())}); err != nil {
		return true, fmt.Errorf("deleting %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return true, nil
}

// Gone reports whether err says that there is no such object, or no such kind. It is for
// kinds that come and go with a feature, never for a machine's.
func Gone(err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}

// Patch sends the difference between before and obj, and nothing where there is
// none. Another object of the same name is a conflict. obj becomes what the server
// answered.
func (a *Actuator) Patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) error {
	_, err := a.patch(ctx, obj, before, opts...)
	return err
}

// patch is Patch, and says whether there was anything to send.
func (a *Actuator) patch(ctx context.Context, obj, before client.Object, opts ...client.PatchOption) (sent bool, err error) {
	if same(obj, before) {
		return false, nil
	}
	if err := asConflict(obj, a.client.Patch(ctx, obj, byUID(before), opts...)); err != nil {
		return true, fmt.Errorf("patching %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return true, nil
}

// byUID is a patch that says which object it is for: the UID is sent as if it had been
// added. An API server refuses to change it.
func byUID(before client.Object) client.Patch {
	if named, ok := before.DeepCopyObject().(client.Object); ok {
		named.SetUID("")
		before = named
	}
	return client.MergeFrom(before)
}

// asConflict returns a conflict for an error that says that another object has the name.
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

// PatchLocked is Patch for changes to lists, which a merge patch replaces whole:
// it is refused with a conflict when the object has changed since it was read.
func (a *Actuator) PatchLocked(ctx context.Context, obj, before client.Object) error {
	_, err := a.patchLocked(ctx, obj, before)
	return err
}

// patchLocked is PatchLocked, and says whether there was anything to send.
func (a *Actuator) patchLocked(ctx context.Context, obj, before client.Object) (sent bool, err error) {
	if same(obj, before) {
		return false, nil
	}
	if err := a.client.Patch(ctx, obj, locked(before)); err != nil {
		return true, fmt.Errorf("patching %s %s: %w", kind(obj), obj.GetName(), err)
	}
	return true, nil
}

// PatchStatus writes the status of obj if it differs from before's. The lock keeps
// the list of conditions from being replaced by an older one.
func (a *Actuator) PatchStatus(ctx context.Context, obj, before client.Object) error {
	if same(obj, before) {
		return nil
	}
	if err := a.client.Status().Patch(ctx, obj, locked(before)); err != nil {
		return fmt.Errorf("patching status: %w", err)
	}
	return nil
}

// same reports whether there is nothing to send. Most looks at an object change
// nothing, and comparing costs a tenth of making the patch that says so.
func same(obj, before client.Object) bool {
	return equality.Semantic.DeepEqual(obj, before)
}

func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// Paused keeps the Paused condition of obj, as Cluster API's own controllers do. It
// reports whether it wrote: obj is then older than what the API server holds.
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
	return reflect.Indirect(reflect.ValueOf(obj)).Type().Name() // A type of the API has the name of its kind.
}
