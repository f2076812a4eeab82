// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// createBackoff bounds the retries of the creation: about 3 s. After that, a person runs the command again.
var createBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 6}

// transient reports whether a creation may succeed when it is sent again.
func transient(err error) bool {
	return !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err)
}

// raw returns the body of a successful response. Result.Raw would hide the API server's error message.
func raw(result rest.Result) ([]byte, error) {
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
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
	body, err := raw(u.rest.Get().Namespace(u.namespace).Resource(resource).Name(u.name).Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, nil, err
	}
	if err == nil {
		err = errors.Join(stored.UnmarshalJSON(body), json.Unmarshal(body, m))
	}
	return stored, m, failed("reading "+u.name, err)
}

// annotation returns a patch of one annotation. A nil value removes it.
func annotation(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// create creates the object again. dryRun is empty or "All".
func (u *undo) create(ctx context.Context, dryRun string) error {
	body, err := manifestOf(u.stored).MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding %s: %w", u.name, err)
	}
	request := u.rest.Post().Namespace(u.namespace).Resource(resource).Param("fieldManager", writer.Plugin).Body(body)
	return dry(request, dryRun).Do(ctx).Error()
}

func dry(request *rest.Request, dryRun string) *rest.Request {
	if dryRun == "" {
		return request
	}
	return request.Param("dryRun", dryRun)
}

// restoreManagers restores the field managers of the object. Otherwise a tool that uses server-side apply could not remove
// its fields any more, and kubectl 5spot why would name this program.
func (u *undo) restoreManagers(ctx context.Context) error {
	if len(u.managers) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": u.managers}})
	if err != nil {
		return fmt.Errorf("building patch: %w", err)
	}
	return failed("restoring the field managers of "+u.name, u.rest.Patch(types.MergePatchType).Namespace(u.namespace).Resource(resource).Name(u.name).
		Param("fieldManager", writer.Plugin).Body(body).Do(ctx).Error())
}

// restoreState restores what only the cluster knew, if another client created the object again first: a GitOps tool, a
// topology, or a second undo-delete. These are the switches and the annotations of 5-Spot.
func (u *undo) restoreState(ctx context.Context) error {
	_, err := u.change(ctx, u.name, func(m *v1alpha1.ScheduledMachine) (map[string]any, error) {
		if !m.DeletionTimestamp.IsZero() {
			return nil, errChanged
		}
		annotations, spec := map[string]any{}, map[string]any{}
		for key, value := range u.stored.GetAnnotations() {
			if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
				annotations[key] = value
			}
		}
		if on, found, _ := unstructured.NestedBool(u.stored.Object, "spec", "schedule", "enabled"); found {
			spec["schedule"] = map[string]any{"enabled": on}
		}
		if on, _, _ := unstructured.NestedBool(u.stored.Object, "spec", "killSwitch"); on {
			spec["killSwitch"] = true
		}
		return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": spec}, nil
	})
	return err
}

// readMachine reads a Machine. It returns NotFound unwrapped.
func (c *cluster) readMachine(ctx context.Context, name string) (*clusterv1.Machine, error) {
	return decodeMachine(name, "reading", c.rest.Get().AbsPath("/apis/"+clusterv1.GroupVersion.String()).Namespace(c.namespace).
		Resource("machines").Name(name).Do(ctx))
}

func decodeMachine(name, doing string, result rest.Result) (*clusterv1.Machine, error) {
	body, err := raw(result)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil, err
	}
	machine := &clusterv1.Machine{}
	if err == nil {
		err = json.Unmarshal(body, machine)
	}
	return machine, failed(doing+" Machine "+name, err)
}

// dropOwner removes the ScheduledMachine from the owners of the Machine. Otherwise the garbage collector might delete
// the Machine, and the new ScheduledMachine would take it for the Machine of another one. It returns a conflict
// unwrapped. dryRun is empty or "All".
func (u *undo) dropOwner(ctx context.Context, machine *clusterv1.Machine, dryRun string) (*clusterv1.Machine, error) {
	owners := slices.DeleteFunc(slices.Clone(machine.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == u.m.UID })
	if len(owners) == len(machine.OwnerReferences) {
		return machine, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": machine.ResourceVersion, "ownerReferences": owners}})
	if err != nil {
		return nil, fmt.Errorf("building patch: %w", err)
	}
	request := u.rest.Patch(types.MergePatchType).AbsPath("/apis/"+clusterv1.GroupVersion.String()).Namespace(u.namespace).
		Resource("machines").Name(machine.Name).Param("fieldManager", writer.Plugin).Body(body)
	return decodeMachine(machine.Name, "changing", dry(request, dryRun).Do(ctx))
}
