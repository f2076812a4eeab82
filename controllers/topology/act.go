// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

var (
	// errTaken means that a ScheduledMachine of another writer has a name of the topology.
	errTaken = errors.New("name is taken")
	// errStaleCache means that the cache does not show the latest state of the API server yet.
	errStaleCache = errors.New("cache is late")
)

// act carries out all writes of a decision. A failure for one ScheduledMachine does not stop the others.
func (r *Reconciler) act(ctx context.Context, d decision) error {
	var errs []error
	for _, sm := range d.create {
		errs = append(errs, r.create(ctx, sm))
	}
	for _, c := range d.change {
		errs = append(errs, r.update(ctx, c))
	}
	for _, sm := range d.remove {
		errs = append(errs, r.Actuate.Delete(ctx, sm))
	}
	return errors.Join(errs...)
}

// create creates a ScheduledMachine that the cache does not have for this topology. Server-side apply would take over
// an object of another writer with the same name. Therefore a live read checks for one first.
func (r *Reconciler) create(ctx context.Context, desired *v1alpha1.ScheduledMachine) error {
	key, other := client.ObjectKeyFromObject(desired), &v1alpha1.ScheduledMachine{}
	err := r.Reader.Get(ctx, key, other)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, other)
	}
	switch {
	case apierrors.IsNotFound(err):
		u, err := encode(desired)
		if err != nil {
			return err
		}
		return r.Actuate.Apply(ctx, u)
	case err != nil:
		return fmt.Errorf("looking for ScheduledMachine %s: %w", desired.Name, err)
	case isOwned(other) && other.Spec.ClusterName == desired.Spec.ClusterName:
		return errStaleCache
	}
	return fmt.Errorf("%w: ScheduledMachine %s exists but does not belong to this topology, and is left alone: rename the machine, or delete it", errTaken, desired.Name)
}

// update applies a changed ScheduledMachine. Fields with another owner in managedFields survive the apply, as all
// fields do after clusterctl move. A second, locked patch removes obsolete ones.
func (r *Reconciler) update(ctx context.Context, c change) error {
	u, err := encode(c.desired)
	if err != nil {
		return err
	}
	u.SetUID(c.live.UID)
	if err := r.Actuate.Apply(ctx, u, client.ForceOwnership); err != nil {
		return err
	}
	live := &v1alpha1.ScheduledMachine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, live); err != nil {
		return fmt.Errorf("reading applied ScheduledMachine: %w", err)
	}
	return r.Actuate.PatchLocked(ctx, change{live, c.desired}.result(), live)
}

// encode returns only the fields that are set: server-side apply owns all fields that it sends.
func encode(sm *v1alpha1.ScheduledMachine) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(sm)
	if err != nil {
		return nil, fmt.Errorf("encoding ScheduledMachine %s: %w", sm.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ScheduledMachine"))
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}
