// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// A presence is what is known of the ExtensionConfig of our name.
type presence string

const (
	absent  presence = "Absent"
	ours    presence = "Ours"
	foreign presence = "Foreign"
)

// facts are everything that a decision depends on.
type facts struct {
	// Enabled says that we are to be registered.
	Enabled bool
	// Existing is what is registered.
	Existing presence
	// Current says that what is registered is what we would register.
	Current bool
}

// A step is what is to be done.
type step string

const (
	// rest is nothing.
	rest step = "Rest"
	// register applies our ExtensionConfig.
	register step = "Register"
	// withdraw deletes it.
	withdraw step = "Withdraw"
	// refuse leaves alone what is somebody else's, and says so.
	refuse step = "Refuse"
)

// decide is the next step.
func decide(f facts) step {
	switch {
	case !f.Enabled && f.Existing == ours:
		return withdraw
	case !f.Enabled:
		return rest
	case f.Existing == foreign:
		return refuse
	case f.Existing == ours && f.Current:
		return rest
	default:
		return register
	}
}

// The labels that say whose an ExtensionConfig is. The instance is the namespace of the
// manager, empty where it has none: another 5-Spot's is not ours.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	instanceLabel  = "app.kubernetes.io/instance"

	managedBy = "5spot"
)

// presenceOf says whose an ExtensionConfig is; nil is none.
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

// desired is the ExtensionConfig that we register. Settings are not in it: they are
// for people to make.
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

// current reports whether existing, which is ours, is as want.
func current(existing, want *runtimev1.ExtensionConfig) bool {
	return equality.Semantic.DeepEqual(existing.Spec.ClientConfig, want.Spec.ClientConfig) &&
		equality.Semantic.DeepEqual(existing.Spec.NamespaceSelector, want.Spec.NamespaceSelector) &&
		equality.Semantic.DeepEqual(existing.OwnerReferences, want.OwnerReferences)
}

// goesForGood reports whether no manager follows one that ends now: its Deployment is
// being deleted, is gone, or has no replicas.
func goesForGood(d *appsv1.Deployment) bool {
	return d == nil || !d.DeletionTimestamp.IsZero() || d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}
