// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// The labels identify the owner of an ExtensionConfig. The instance is the namespace of the manager, empty outside a
// cluster. An ExtensionConfig of another instance of 5-Spot is foreign.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	instanceLabel  = "app.kubernetes.io/instance"

	managedBy = "5spot"
)

// ours reports whether an ExtensionConfig exists and belongs to this instance.
func ours(existing *runtimev1.ExtensionConfig, o Options) bool {
	return existing != nil && existing.Labels[managedByLabel] == managedBy && existing.Labels[instanceLabel] == o.PodNamespace
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
