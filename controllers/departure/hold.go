// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxHoldReason is the maximum length of a person's reason in a condition message, in bytes.
const maxHoldReason = 200

// holdMessage returns the message for the annotation that holds the departures of a Cluster, empty without one. c may be
// nil.
func holdMessage(c *clusterv1.Cluster) string {
	if c == nil {
		return ""
	}
	reason, held := c.Annotations[v1alpha1.HoldDeparturesAnnotation]
	if !held {
		return ""
	}
	if reason = clip.To(clip.Line(reason), maxHoldReason); reason != "" {
		reason = ": " + reason
	}
	return fmt.Sprintf("The departures of Cluster %s are held%s. To end this: kubectl 5spot -n %s release-departures %s", c.Name, reason, c.Namespace, c.Name)
}
