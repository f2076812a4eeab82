// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the hooks that 5-Spot calls on extensions before a machine leaves. They have the shape of
// Cluster API's Runtime Hooks and are registered in a catalog of its Runtime SDK, so an extension is built with the
// same server (sigs.k8s.io/cluster-api/exp/runtime/server). Cluster API itself does not know them: an extension must
// not name them in a discovery that Cluster API reads, which would stop its core manager. 5-Spot calls the extensions
// that a MachineDeletionHook names.
//
// +kubebuilder:object:generate=true
// +groupName=hooks.5spot.finos.org
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
)

// GroupVersion is the group and version of the hooks in this package.
var GroupVersion = schema.GroupVersion{Group: "hooks.5spot.finos.org", Version: "v1alpha1"}

var catalogBuilder = &runtimecatalog.Builder{GroupVersion: GroupVersion}

// AddToCatalog adds the hooks of this package to a catalog.
var AddToCatalog = catalogBuilder.AddToCatalog

func init() { //nolint:gochecknoinits // as Cluster API registers its hooks
	catalogBuilder.RegisterHook(BeforeMachineDelete, &runtimecatalog.HookMeta{
		Tags:    []string{"Machine deletion"},
		Summary: "Called before a Machine that is being deleted is drained, and again before it is terminated",
		Description: "An extension that answers with a retryAfterSeconds above zero holds the deletion and is called again. " +
			"Its MachineDeletionHook limits how long it may do so in all. Calls are repeated, even after a positive answer.",
	})
}
