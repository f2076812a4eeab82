// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// reservedPrefixes are the label and annotation domains that belong to
// Kubernetes, Cluster API and this project, and what Cluster API copies from the
// Machine to its Node with a meaning that no author of a Machine may give it.
var reservedPrefixes = []string{
	"kubernetes.io/", "k8s.io/", "cluster.x-k8s.io/", "5spot.finos.org/",
	"node-role.kubernetes.io/", "node-restriction.kubernetes.io/",
}

const (
	// nodeRestriction is the end of a domain that kubelets must not label their own
	// Nodes with, so that a machine cannot call itself trusted.
	nodeRestriction = ".node-restriction.kubernetes.io/"
	// deletionHook is in every key that has Cluster API wait before it deletes a
	// Machine. It looks at the beginning of the key only, and not for a slash.
	deletionHook = ".delete.hook.machine.cluster.x-k8s.io"
)

func metadata(t v1alpha1.MachineTemplate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		at := path.Child("labels").Key(key)
		errs = append(errs, metadataKey(key, at)...)
		for _, msg := range validation.IsValidLabelValue(t.Labels[key]) {
			errs = append(errs, field.Invalid(at, t.Labels[key], msg))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Annotations)) {
		errs = append(errs, metadataKey(strings.ToLower(key), path.Child("annotations").Key(key))...)
	}
	return errs
}

func metadataKey(key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range validation.IsQualifiedName(key) {
		errs = append(errs, field.Invalid(path, key, msg))
	}
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(key, prefix) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("keys that begin with %s are reserved; use another domain", prefix)))
		}
	}
	for _, part := range []string{nodeRestriction, deletionHook} {
		if strings.Contains(key, part) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("keys with %s in them are reserved; use another domain", part)))
		}
	}
	return errs
}
