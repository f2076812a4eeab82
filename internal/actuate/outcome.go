// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// errAck reports an answer to a creation that is not of the object that was sent.
var errAck = errors.New("create: answer rejected")

// ours are the labels by which an object is found again.
var ours = []string{v1alpha1.ScheduledMachineLabel, clusterv1.ClusterNameLabel}

// acknowledged returns an error for the answer to a creation that has no UID, or lacks one
// of our labels that were sent. What exists is looked at again at the next try.
func acknowledged(answer client.Object, sent map[string]string) error {
	why := ""
	if answer.GetUID() == "" {
		why = "it has no UID"
	}
	for _, label := range ours {
		if want, labelled := sent[label]; labelled && answer.GetLabels()[label] != want {
			why = fmt.Sprintf("label %s is %q instead of %q: does an admission webhook change it?", label, answer.GetLabels()[label], want)
		}
	}
	if why == "" {
		return nil
	}
	telemetry.Rejected(ingest.Ack)
	return fmt.Errorf("%w: %s %s: %s", errAck, kind(answer), answer.GetName(), why)
}

// outcomeOf is what an error says of a try. A request that nobody waited for to the end was
// answered by nobody.
func (a *Actuator) outcomeOf(err error) audit.Outcome {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil:
		return audit.Success
	case errors.Is(err, errAck):
		return audit.AckRejected
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return audit.Conflict
	case kinds.NoObject(err):
		return audit.NotFound
	case a.remote && !answered:
		return audit.RemoteUnreachable
	default:
		return audit.APIError
	}
}
