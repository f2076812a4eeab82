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

// reservedPrefixes are label and annotation domains of Kubernetes, Cluster API and this project. Cluster API copies
// some labels of a Machine to its Node, where they have a special meaning. Authors must not set them.
var reservedPrefixes = []string{
	"kubernetes.io/", "k8s.io/", "cluster.x-k8s.io/", "5spot.finos.org/",
	"node-role.kubernetes.io/", "node-restriction.kubernetes.io/",
}

const (
	// nodeRestriction is the end of a label domain that kubelets must not set on their own Nodes. Otherwise a machine
	// could label itself as trusted.
	nodeRestriction = ".node-restriction.kubernetes.io/"
	// deletionHook is part of the key of each Cluster API deletion hook. Cluster API checks only the prefix of a key,
	// which need not have a slash.
	deletionHook = ".delete.hook.machine.cluster.x-k8s.io"
)

func metadata(t v1alpha1.MachineTemplate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		at := path.Child("labels").Key(key)
		errs = append(errs, metadataKey(key, at)...)
		errs = append(errs, invalid(at, t.Labels[key], validation.IsValidLabelValue(t.Labels[key]))...)
	}
	for _, key := range slices.Sorted(maps.Keys(t.Annotations)) {
		errs = append(errs, metadataKey(strings.ToLower(key), path.Child("annotations").Key(key))...)
	}
	return errs
}

func metadataKey(key string, path *field.Path) field.ErrorList {
	errs := invalid(path, key, validation.IsQualifiedName(key))
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
