// SPDX-License-Identifier: Apache-2.0

// Package installed describes what 5-Spot installs in workload clusters: which objects there are its own, which
// ScheduledMachines need the reclaim agent, and what to do about a failed installation. It reads and writes nothing.
package installed

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A label of the objects that 5-Spot creates in a workload cluster. Only objects that the manager created have it, not
// objects that a person created from the same manifests.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "5spot"
)

// AgentLabels are the labels of the agent's pods, for each way to install it, and of its ConfigMaps.
var AgentLabels = client.MatchingLabels{"app.kubernetes.io/name": "5spot", "app.kubernetes.io/component": "reclaim-agent"}

// Presence is the owner of an object that has a name of the installation.
type Presence string

// The presences; the zero value is Absent.
const (
	// Absent means that there is no such object.
	Absent Presence = ""
	// Foreign means that another writer created it.
	Foreign Presence = "Foreign"
	// Elsewhere means that 5-Spot created it, for another Cluster with the same API server.
	Elsewhere Presence = "Elsewhere"
	// Ours means that 5-Spot created it for this Cluster.
	Ours Presence = "Ours"
)

// PresenceOf returns the owner of an existing object. An object of 5-Spot is still recognized if only the label or only
// the annotations were removed.
func PresenceOf(obj metav1.Object, cluster client.ObjectKey) Presence {
	a := obj.GetAnnotations()
	namespace, name := a[clusterv1.ClusterNamespaceAnnotation], a[clusterv1.ClusterNameAnnotation]
	here, nowhere := namespace == cluster.Namespace && name == cluster.Name, namespace == "" && name == ""
	switch by := obj.GetLabels()[ManagedByLabel]; {
	case by == ManagedBy && (here || nowhere), by == "" && here:
		return Ours
	case by == ManagedBy:
		return Elsewhere
	default:
		return Foreign
	}
}

// Claim sets the label of 5-Spot, and annotations that name the Cluster.
func Claim(obj metav1.Object, cluster client.ObjectKey) {
	obj.SetLabels(labels.Merge(obj.GetLabels(), map[string]string{ManagedByLabel: ManagedBy}))
	obj.SetAnnotations(labels.Merge(obj.GetAnnotations(), map[string]string{
		clusterv1.ClusterNamespaceAnnotation: cluster.Namespace, clusterv1.ClusterNameAnnotation: cluster.Name,
	}))
}

// ErrForeign means that an object of another writer has a name that 5-Spot needs.
var ErrForeign = errors.New("not managed by 5-Spot")

// ForeignError returns an ErrForeign that names the object.
func ForeignError(kind, name string) error {
	return fmt.Errorf("%s %s exists and is %w, and is left alone", kind, name, ErrForeign)
}

// Uses reports whether a ScheduledMachine needs the agent in its Cluster: it names programs to watch for.
func Uses(sm *v1alpha1.ScheduledMachine) bool { return !sm.Spec.AgentConfig().Inert() }

// OnNode reports whether the agent must run on the Node of a ScheduledMachine. A Machine that is being deleted needs no
// agent. A deleted ScheduledMachine needs one until then, because a safety rail can keep its Machine for days.
func OnNode(sm *v1alpha1.ScheduledMachine, machine *clusterv1.Machine) bool {
	return Uses(sm) && machine != nil && machine.DeletionTimestamp.IsZero()
}

// NodeOf returns the name of the Node of a ConfigMap of the agent. The name of a ConfigMap can be a hash.
func NodeOf(cm client.Object) string {
	for _, owner := range cm.GetOwnerReferences() {
		if reclaim.ConfigMapName(owner.Name) == cm.GetName() {
			return owner.Name
		}
	}
	return strings.TrimPrefix(cm.GetName(), reclaim.ConfigMapName(""))
}
