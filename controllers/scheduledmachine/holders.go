// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"cmp"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// holders names the objects that block the next step of a deletion: deletion hooks with their owners, or finalizers.
// Cluster API's own message names neither.
func (s *scope) holders(reason string) string {
	switch reason {
	case clusterv1.MachineDeletingWaitingForPreDrainHookReason:
		return s.hooks(clusterv1.PreDrainDeleteHookAnnotationPrefix)
	case clusterv1.MachineDeletingWaitingForPreTerminateHookReason:
		return s.hooks(clusterv1.PreTerminateDeleteHookAnnotationPrefix)
	case clusterv1.MachineDeletingWaitingForInfrastructureDeletionReason:
		if s.children.Infrastructure != nil {
			return heldObject(s.children.Infrastructure)
		}
	case clusterv1.MachineDeletingWaitingForBootstrapDeletionReason:
		if s.children.Bootstrap != nil {
			return heldObject(s.children.Bootstrap)
		}
	case clusterv1.MachineDeletingDeletionCompletedReason:
		if finalizers := foreignFinalizers(s.children.Machine); len(finalizers) > 0 {
			return "but Machine " + s.children.Machine.Name + " is held by the finalizers of others: " + strings.Join(finalizers, ", ")
		}
	}
	return ""
}

// hooks lists the hooks of others with a prefix. The value of a hook is its owner.
func (s *scope) hooks(prefix string) string {
	var hooks []string
	m := s.children.Machine
	for _, key := range s.children.WaitsFor(children.HonourHooks) {
		if strings.HasPrefix(key, prefix) {
			hooks = append(hooks, strings.TrimPrefix(key, prefix+"/")+" (owner: "+cmp.Or(m.Annotations[key], "unnamed")+")")
		}
	}
	if len(hooks) == 0 {
		return ""
	}
	return strings.Join(hooks, ", ") + "; the owner takes the annotation off Machine " + m.Name + " when it is done"
}

// heldObject returns kind and name of an object, and the finalizers that hold it.
func heldObject(obj client.Object) string {
	text := obj.GetObjectKind().GroupVersionKind().Kind + " " + obj.GetName()
	if finalizers := foreignFinalizers(obj); len(finalizers) > 0 {
		text += " (finalizers: " + strings.Join(finalizers, ", ") + ")"
	}
	return text
}

// foreignFinalizers returns all finalizers except Cluster API's own on a Machine.
func foreignFinalizers(obj client.Object) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == clusterv1.MachineFinalizer })
}
