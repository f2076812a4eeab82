// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// createBackoff bounds the retries of the creation: about 3 s. After that, a person runs the command again.
var createBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6}

// transient reports whether a creation may succeed when it is sent again.
func transient(err error) bool {
	return !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)
}

// read reads the object into stored and m. It returns NotFound unwrapped.
func (u *undo) read(ctx context.Context) error {
	stored, m, err := u.readObject(ctx)
	if err == nil {
		u.stored, u.m = stored, m
	}
	return err
}

func (u *undo) readObject(ctx context.Context) (*unstructured.Unstructured, *v1alpha1.ScheduledMachine, error) {
	stored, m := &unstructured.Unstructured{}, &v1alpha1.ScheduledMachine{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	err := u.Get(ctx, u.key(u.name), stored)
	if apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, m)
	}
	return stored, m, failed("reading "+u.name, err)
}

func (u *undo) create(ctx context.Context, opts ...client.CreateOption) error {
	return u.Create(ctx, manifestOf(u.stored), append(opts, client.FieldOwner(writer.Plugin))...)
}

// restoreManagers restores the field managers of the object. Otherwise a tool that uses server-side apply could not remove
// its fields any more, and kubectl 5spot why would name this program.
func (u *undo) restoreManagers(ctx context.Context) error {
	if len(u.managers) == 0 {
		return nil
	}
	before := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: u.name}}
	m := before.DeepCopy()
	m.ManagedFields = u.managers
	return failed("restoring the field managers of "+u.name, u.Patch(ctx, m, client.MergeFrom(before), client.FieldOwner(writer.Plugin)))
}

// restoreState restores what only the cluster knew, if another client created the object again first: a GitOps tool, a
// topology, or a second undo-delete. These are the switches and the annotations of 5-Spot.
func (u *undo) restoreState(ctx context.Context) error {
	var was v1alpha1.ScheduledMachine
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.stored.Object, &was); err != nil {
		return fmt.Errorf("reading %s: %w", u.path(), err)
	}
	_, err := u.change(ctx, u.name, func(m *v1alpha1.ScheduledMachine) error {
		if !m.DeletionTimestamp.IsZero() {
			return errChanged
		}
		for key, value := range was.Annotations {
			if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
				metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value)
			}
		}
		if was.Spec.Schedule.Enabled != nil {
			m.Spec.Schedule.Enabled = was.Spec.Schedule.Enabled
		}
		m.Spec.KillSwitch = m.Spec.KillSwitch || was.Spec.KillSwitch
		return nil
	})
	return err
}

// dropOwner removes the ScheduledMachine from the owners of the Machine. Otherwise the garbage collector might delete
// the Machine, and the new ScheduledMachine would take it for the Machine of another one. It returns a conflict
// unwrapped.
func (u *undo) dropOwner(ctx context.Context, machine *clusterv1.Machine, opts ...client.PatchOption) error {
	before := machine.DeepCopy()
	machine.OwnerReferences = slices.DeleteFunc(machine.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == u.m.UID })
	if len(machine.OwnerReferences) == len(before.OwnerReferences) {
		return nil
	}
	err := u.Patch(ctx, machine, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), append(opts, client.FieldOwner(writer.Plugin))...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return err
	}
	return failed("changing Machine "+machine.Name, err)
}
