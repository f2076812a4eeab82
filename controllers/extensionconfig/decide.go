// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// A presence is the owner of the existing ExtensionConfig.
type presence string

const (
	absent  presence = "Absent"
	ours    presence = "Ours"
	foreign presence = "Foreign"
)

// facts is the state that a decision depends on.
type facts struct {
	// Enabled reports that the extension has to be registered.
	Enabled bool
	// Existing is the owner of the existing ExtensionConfig.
	Existing presence
	// Current reports that the existing ExtensionConfig equals the desired one.
	Current bool
}

// A step is the result of a decision.
type step string

const (
	// noChange makes no change.
	noChange step = "NoChange"
	// register applies the ExtensionConfig.
	register step = "Register"
	// withdraw deletes the ExtensionConfig.
	withdraw step = "Withdraw"
	// refuse makes no change, and reports an ExtensionConfig of another writer.
	refuse step = "Refuse"
)

// decide returns the next step.
func decide(f facts) step {
	switch {
	case !f.Enabled && f.Existing == ours:
		return withdraw
	case !f.Enabled:
		return noChange
	case f.Existing == foreign:
		return refuse
	case f.Existing == ours && f.Current:
		return noChange
	default:
		return register
	}
}

// The labels identify the owner of an ExtensionConfig. The instance is the namespace of the manager, empty outside a
// cluster. An ExtensionConfig of another instance of 5-Spot is foreign.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	instanceLabel  = "app.kubernetes.io/instance"

	managedBy = "5spot"
)

// presenceOf returns the owner of an ExtensionConfig; nil is absent.
func presenceOf(existing *runtimev1.ExtensionConfig, o Options) presence {
	switch {
	case existing == nil:
		return absent
	case existing.Labels[managedByLabel] == managedBy && existing.Labels[instanceLabel] == o.PodNamespace:
		return ours
	default:
		return foreign
	}
}

// desired returns the ExtensionConfig. It has no settings, because people may set them.
func desired(o Options, ca []byte, owner *metav1.PartialObjectMetadata) *runtimev1.ExtensionConfig {
	c := &runtimev1.ExtensionConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: runtimev1.GroupVersion.String(), Kind: "ExtensionConfig"},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Labels: map[string]string{managedByLabel: managedBy, instanceLabel: o.PodNamespace}},
		Spec: runtimev1.ExtensionConfigSpec{
			ClientConfig:      runtimev1.ClientConfig{URL: o.URL, CABundle: ca},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	}
	if o.URL == "" {
		c.Spec.ClientConfig.Service = runtimev1.ServiceReference{Namespace: o.PodNamespace, Name: serviceName, Port: new(int32(servicePort))}
	}
	if o.WatchedNamespace != "" {
		c.Spec.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: o.WatchedNamespace}
	}
	if owner != nil {
		c.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID,
		}}
	}
	return c
}

// current reports whether existing has all desired fields.
func current(existing, want *runtimev1.ExtensionConfig) bool {
	return equality.Semantic.DeepEqual(existing.Spec.ClientConfig, want.Spec.ClientConfig) &&
		equality.Semantic.DeepEqual(existing.Spec.NamespaceSelector, want.Spec.NamespaceSelector) &&
		equality.Semantic.DeepEqual(existing.OwnerReferences, want.OwnerReferences)
}

// stopsForGood reports whether no new manager will start: the Deployment is missing, being deleted, or has zero
// replicas.
func stopsForGood(d *appsv1.Deployment) bool {
	return d == nil || !d.DeletionTimestamp.IsZero() || d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}
