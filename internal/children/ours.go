// SPDX-License-Identifier: Apache-2.0

package children

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// Ownership and the references of the Machine determine whether an object belongs to a ScheduledMachine. The
// label is for finding it, because anyone may remove the label. The label alone is enough for an object without
// a controller: a backup may be restored without owner references.

// isMachineOf reports whether obj, a Machine with the name of the child, belongs to sm.
func isMachineOf(obj client.Object, sm *v1alpha1.ScheduledMachine) bool {
	if ref := metav1.GetControllerOf(obj); ref != nil {
		return ref.UID == sm.UID
	}
	return owns(sm, obj) || labelled(obj, sm) || scheduledMachineByName(obj) == sm.Name
}

// isPartOf reports whether obj, with the name of the child, is the bootstrap config or infrastructure machine
// of sm. Cluster API makes the Machine its controller. machine is nil if there is none.
func isPartOf(obj client.Object, sm *v1alpha1.ScheduledMachine, machine *clusterv1.Machine) bool {
	ours := owns(sm, obj) || labelled(obj, sm)
	switch ref := metav1.GetControllerOf(obj); {
	case ref == nil:
		return ours || machine != nil && refers(machine, obj)
	case ref.UID == sm.UID, machine != nil && ref.UID == machine.UID:
		return true
	// The controller is the Machine of a restored backup, or one that was deleted.
	default:
		return ours && groupOf(ref.APIVersion) == clusterv1.GroupVersion.Group &&
			ref.Kind == MachineKind.Kind && ref.Name == NamesOf(sm.Name).Machine
	}
}

func owns(sm *v1alpha1.ScheduledMachine, obj client.Object) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == sm.UID })
}

func labelled(obj client.Object, sm *v1alpha1.ScheduledMachine) bool {
	return obj.GetLabels()[v1alpha1.ScheduledMachineLabel] == sm.Name
}

func refers(machine *clusterv1.Machine, obj client.Object) bool {
	kind := obj.GetObjectKind().GroupVersionKind()
	ref := clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: obj.GetName()}
	return ref == machine.Spec.Bootstrap.ConfigRef || ref == machine.Spec.InfrastructureRef
}

// ParentOf returns the name of the ScheduledMachine of which obj is a child, empty if none. The owner reference
// has precedence, because a label is easily changed. The label counts if the garbage collector has removed the
// owner reference, as in a foreground deletion.
func ParentOf(obj client.Object) string {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.Kind == "ScheduledMachine" && groupOf(ref.APIVersion) == v1alpha1.GroupVersion.Group {
			return ref.Name
		}
	}
	if name := obj.GetLabels()[v1alpha1.ScheduledMachineLabel]; name != "" {
		return name
	}
	return scheduledMachineByName(obj)
}

// scheduledMachineByName returns the name of the ScheduledMachine that a Machine was made for, if both our owner
// reference and our label were removed. It is empty for every other object.
func scheduledMachineByName(obj client.Object) string {
	_, created := obj.GetAnnotations()[v1alpha1.CreatedAnnotation]
	name, ours := strings.CutSuffix(obj.GetName(), NamesOf("").Machine)
	if !created || !ours || metav1.GetControllerOf(obj) != nil || obj.GetLabels()[v1alpha1.ScheduledMachineLabel] != "" {
		return ""
	}
	return name
}

// groupOf returns the group of an apiVersion, empty if that cannot be parsed.
func groupOf(apiVersion string) string { return schema.FromAPIVersionAndKind(apiVersion, "").Group }

// Claim restores our label and our owner reference on a child that has lost one of them, and reports whether it
// had. It does not restore the owner reference of an object that is being deleted: in a foreground deletion,
// the garbage collector removes it.
func Claim(child client.Object, sm *v1alpha1.ScheduledMachine) (changed bool) {
	if !labelled(child, sm) {
		child.SetLabels(labels.Merge(child.GetLabels(), labels.Set{v1alpha1.ScheduledMachineLabel: sm.Name}))
		changed = true
	}
	if sm.DeletionTimestamp.IsZero() && child.GetDeletionTimestamp().IsZero() && !owns(sm, child) {
		_, isMachine := child.(*clusterv1.Machine)
		child.SetOwnerReferences(append(slices.Clone(child.GetOwnerReferences()), owner(sm, isMachine)))
		changed = true
	}
	return changed
}

// Orphaned reports whether the ScheduledMachine of m does not exist. uid is the UID of the ScheduledMachine with the
// name of its parent, empty if there is none. If the garbage collector has removed the owner reference, the label
// counts.
func Orphaned(m *clusterv1.Machine, uid types.UID) bool {
	ref := metav1.GetControllerOf(m)
	return MadeByUs(m) && (uid == "" || ref != nil && ref.UID != uid)
}

// MadeByUs reports whether a Machine was made for a ScheduledMachine and has no other controller.
func MadeByUs(m *clusterv1.Machine) bool {
	if ref := metav1.GetControllerOf(m); ref != nil {
		return ref.Kind == "ScheduledMachine" && groupOf(ref.APIVersion) == v1alpha1.GroupVersion.Group
	}
	name := ParentOf(m)
	return name != "" && m.Name == NamesOf(name).Machine
}
