// SPDX-License-Identifier: Apache-2.0

package children

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// skipWaits are the annotations that make Cluster API skip its waits and keep a MachineHealthCheck from remediating the
// Machine.
var skipWaits = []string{
	clusterv1.ExcludeNodeDrainingAnnotation,
	clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation,
	clusterv1.MachineSkipRemediationAnnotation,
}

// ourHooks are the deletion hooks of 5-Spot.
var ourHooks = []string{v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation}

// ForeignHookPolicy determines how a removal treats deletion hooks of other owners on the Machine. The zero value
// honours them.
type ForeignHookPolicy string

const (
	// HonourHooks does not delete the infrastructure while the Machine has such a hook.
	HonourHooks ForeignHookPolicy = ""
	// BypassHooks deletes the infrastructure in spite of them. The Machine object still waits.
	BypassHooks ForeignHookPolicy = "Bypass"
)

// WaitsFor returns the deletion hooks that keep a removal from deleting the infrastructure, sorted by name.
func (s *Set) WaitsFor(hooks ForeignHookPolicy) []string {
	if s.Machine == nil || hooks == BypassHooks {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Machine.Annotations)), func(key string) bool {
		return slices.Contains(ourHooks, key) || !strings.HasPrefix(key, clusterv1.PreDrainDeleteHookAnnotationPrefix) &&
			!strings.HasPrefix(key, clusterv1.PreTerminateDeleteHookAnnotationPrefix)
	})
}

// NextToDelete returns the object that a removal deletes after the Machine, nil if there is none. The deletion of a
// Machine includes its bootstrap config. Without a Machine, the bootstrap config is last, after the
// infrastructure is known to be gone: providers read it while they clean up a host.
func (s *Set) NextToDelete(hooks ForeignHookPolicy) *unstructured.Unstructured {
	switch {
	case len(s.WaitsFor(hooks)) > 0:
		return nil
	case s.Machine != nil, s.Infrastructure != nil:
		return s.Infrastructure
	case s.InfrastructureUnknown:
		return nil
	default:
		return s.Bootstrap
	}
}

// Removed reports whether a removal has nothing left to do except wait.
func (s *Set) Removed(hooks ForeignHookPolicy) bool {
	last := s.NextToDelete(hooks)
	return s.Expedited() && (last == nil || !last.GetDeletionTimestamp().IsZero())
}

// Expedited reports whether the Machine is being deleted without waits, or does not exist.
func (s *Set) Expedited() bool {
	if s.Machine == nil {
		return true
	}
	has := func(key string) bool { return metav1.HasAnnotation(s.Machine.ObjectMeta, key) }
	lacks := func(key string) bool { return !has(key) }
	return !s.Machine.DeletionTimestamp.IsZero() && !slices.ContainsFunc(skipWaits, lacks) && !slices.ContainsFunc(ourHooks, has)
}

// Expedite changes m so that its deletion has no waits. It returns the annotations that it added.
func Expedite(m *clusterv1.Machine) (added []string) {
	for _, key := range skipWaits {
		if !metav1.HasAnnotation(m.ObjectMeta, key) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, "")
			added = append(added, key)
		}
	}
	RemoveHooks(m)
	return added
}

// RemoveHooks removes our deletion hooks from m.
func RemoveHooks(m *clusterv1.Machine) {
	for _, key := range ourHooks {
		delete(m.Annotations, key)
	}
}

// Withdraw removes the departure record from m, and undoes the changes that came with it. It also restores our hooks,
// which hold the Machine if another client deletes it.
func Withdraw(m *clusterv1.Machine) {
	d, _ := v1alpha1.ParseDeparture(m.Annotations[v1alpha1.DepartureAnnotation])
	for _, key := range d.Skips {
		if slices.Contains(skipWaits, key) {
			delete(m.Annotations, key)
		}
	}
	delete(m.Annotations, v1alpha1.DepartureAnnotation)
	for _, hook := range ourHooks {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, hook, v1alpha1.FieldManager)
	}
}
