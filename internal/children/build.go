// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/instant"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// Machine builds the Machine. version is the Kubernetes version of the Cluster, empty if unknown. now is the
// time of creation. Immutable fields are copied from live, which is nil before the Machine exists.
func Machine(sm *v1alpha1.ScheduledMachine, version string, now time.Time, live *clusterv1.Machine) (*unstructured.Unstructured, error) {
	annotations := map[string]string{}
	maps.Copy(annotations, sm.Spec.MachineTemplate.Annotations)
	drain, err := schedule.ParseDuration(cmp.Or(sm.Spec.NodeDrainTimeout, v1alpha1.DefaultTimeout))
	if err != nil {
		return nil, fmt.Errorf("spec.nodeDrainTimeout: %w", err)
	}
	spec := machineSpec(sm, version, live)
	if drain == 0 {
		// For Cluster API, a timeout of zero means to wait forever. Here it means not to drain.
		annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
	} else {
		spec["deletion"] = map[string]any{"nodeDrainTimeoutSeconds": int64(drain / time.Second)}
	}
	for _, hook := range ourHooks {
		annotations[hook] = v1alpha1.FieldManager
	}
	if live == nil {
		annotations[v1alpha1.CreatedAnnotation] = now.UTC().Format(time.RFC3339)
	} else if created, known := live.Annotations[v1alpha1.CreatedAnnotation]; known {
		annotations[v1alpha1.CreatedAnnotation] = created
	}

	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(MachineKind)
	u.SetNamespace(sm.Namespace)
	u.SetName(NamesOf(sm.Name).Machine)
	u.SetLabels(labels.Merge(sm.Spec.MachineTemplate.Labels, labelsOf(sm)))
	u.SetAnnotations(annotations)
	u.SetOwnerReferences(append([]metav1.OwnerReference{owner(sm, true)}, ClusterOwner(sm)...))
	applied, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("hashing Machine: %w", err)
	}
	annotations[v1alpha1.AppliedHashAnnotation] = digest(applied)
	u.SetAnnotations(annotations)
	return u, nil
}

func machineSpec(sm *v1alpha1.ScheduledMachine, version string, live *clusterv1.Machine) map[string]any {
	bootstrapRef, infraRef := BootstrapOf(sm).contractReference(), InfrastructureOf(sm).contractReference()
	if live != nil {
		version, bootstrapRef, infraRef = live.Spec.Version, live.Spec.Bootstrap.ConfigRef, live.Spec.InfrastructureRef
	}
	spec := map[string]any{
		"clusterName":       sm.Spec.ClusterName,
		"bootstrap":         map[string]any{"configRef": reference(bootstrapRef)},
		"infrastructureRef": reference(infraRef),
	}
	if version != "" {
		spec["version"] = version
	}
	return spec
}

func (p Part) contractReference() clusterv1.ContractVersionedObjectReference {
	kind := p.Kind()
	return clusterv1.ContractVersionedObjectReference{APIGroup: kind.Group, Kind: kind.Kind, Name: p.Name}
}

func reference(r clusterv1.ContractVersionedObjectReference) map[string]any {
	return map[string]any{"apiGroup": r.APIGroup, "kind": r.Kind, "name": r.Name}
}

// labelsOf returns the labels of every child. It includes the watch label: Cluster API and providers may use the
// same watch filter.
func labelsOf(sm *v1alpha1.ScheduledMachine) map[string]string {
	l := map[string]string{
		clusterv1.ClusterNameLabel:     sm.Spec.ClusterName,
		v1alpha1.ScheduledMachineLabel: sm.Name,
	}
	if filter, ok := sm.Labels[clusterv1.WatchLabel]; ok {
		l[clusterv1.WatchLabel] = filter
	}
	return l
}

func owner(sm *v1alpha1.ScheduledMachine, controller bool) metav1.OwnerReference {
	ref := metav1.NewControllerRef(sm, v1alpha1.GroupVersion.WithKind("ScheduledMachine"))
	if !controller {
		ref.Controller, ref.BlockOwnerDeletion = nil, nil
	}
	return *ref
}

// ClusterReference returns an owner reference to a Cluster. It is not a controller reference. clusterctl move and the
// garbage collector follow it.
func ClusterReference(cluster *clusterv1.Cluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID}
}

// ClusterOwner returns an owner reference to the Cluster if sm has one. With it, the garbage collector does not
// delete the Machine in a foreground deletion of its ScheduledMachine, because the Machine has another owner.
// Otherwise the infrastructure would be deleted while the Machine is being drained.
func ClusterOwner(sm *v1alpha1.ScheduledMachine) []metav1.OwnerReference {
	for _, ref := range sm.OwnerReferences {
		if groupOf(ref.APIVersion) == clusterv1.GroupVersion.Group && ref.Kind == "Cluster" && ref.Name == sm.Spec.ClusterName {
			return []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}}
		}
	}
	return nil
}

// GraceOf returns gracefulShutdownTimeout, and the default if it cannot be parsed.
func GraceOf(sm *v1alpha1.ScheduledMachine) time.Duration {
	d, err := schedule.ParseDuration(cmp.Or(sm.Spec.GracefulShutdownTimeout, v1alpha1.DefaultTimeout))
	if err != nil {
		d, _ = schedule.ParseDuration(v1alpha1.DefaultTimeout)
	}
	return d
}

// FormatGrace returns a grace as a departure record has it, in seconds.
func FormatGrace(grace time.Duration) string { return fmt.Sprintf("%ds", grace/time.Second) }

// GraceDuring returns the grace of a departure that has started: the longer of gracefulShutdownTimeout now and
// at the start. One edit of many objects cannot end departures that have started. Without sm it is the one at the start,
// zero if the record has none.
func GraceDuring(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Duration {
	d, _ := DepartureOf(m, now)
	recorded, _ := schedule.ParseDuration(d.Grace) // zero for a record without it
	if sm == nil {
		return max(0, recorded)
	}
	return max(GraceOf(sm), recorded)
}

// GraceBegan returns when the grace of a departure began, zero if m is not leaving. See LeavingSince. After a pause it
// begins anew: 5-Spot has acted on nothing meanwhile, and Cluster API neither, if its Cluster was paused.
func GraceBegan(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	since := LeavingSince(m, sm, now)
	if since.IsZero() || sm == nil {
		return since
	}
	switch p := conditions.Get(sm, clusterv1.PausedCondition); {
	case p == nil, p.LastTransitionTime.After(now.Add(rails.MaxSkew)): // The clock was ahead then.
		return since
	case p.Status == metav1.ConditionTrue:
		return instant.Latest(since, now)
	default:
		return instant.Latest(since, p.LastTransitionTime.Time)
	}
}

// DeadlineOf returns when the grace of a departure ends, zero if m is not leaving.
func DeadlineOf(m *clusterv1.Machine, sm *v1alpha1.ScheduledMachine, now time.Time) time.Time {
	began := GraceBegan(m, sm, now)
	if began.IsZero() {
		return time.Time{}
	}
	return began.Add(GraceDuring(m, sm, now))
}

// Outdated reports whether live lacks anything that desired applies, or was applied from another desired state.
func Outdated(live *clusterv1.Machine, desired *unstructured.Unstructured) bool {
	controller := metav1.GetControllerOfNoCopy(live)
	drainSeconds, _, _ := unstructured.NestedInt64(desired.Object, "spec", "deletion", "nodeDrainTimeoutSeconds")
	return !labels.SelectorFromSet(desired.GetLabels()).Matches(labels.Set(live.Labels)) ||
		!labels.SelectorFromSet(desired.GetAnnotations()).Matches(labels.Set(live.Annotations)) ||
		controller == nil || controller.UID != desired.GetOwnerReferences()[0].UID ||
		int64(ptr.Deref(live.Spec.Deletion.NodeDrainTimeoutSeconds, 0)) != drainSeconds
}
