// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxHoldReason is the maximum length of a person's reason in a condition message, in bytes.
const maxHoldReason = 200

// hold returns the message for the annotation that holds the departures of a Cluster, empty without one.
func (r *Reconciler) hold(ctx context.Context, key client.ObjectKey) (string, error) {
	c := &clusterv1.Cluster{}
	if err := r.Reader.Get(ctx, key, c); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	reason, held := c.Annotations[v1alpha1.HoldDeparturesAnnotation]
	if !held {
		return "", nil
	}
	if reason = clip.To(clip.Line(reason), maxHoldReason); reason != "" {
		reason = ": " + reason
	}
	return fmt.Sprintf("The departures of Cluster %s are held%s. To end this: kubectl 5spot -n %s release-departures %s", key.Name, reason, key.Namespace, key.Name), nil
}

// holdChanges selects updates that set, change or remove the annotation.
func holdChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, was := e.ObjectOld.GetAnnotations()[v1alpha1.HoldDeparturesAnnotation]
			after, is := e.ObjectNew.GetAnnotations()[v1alpha1.HoldDeparturesAnnotation]
			return was != is || before != after
		},
	}
}
