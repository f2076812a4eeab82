// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
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

// errAck reports that the response to a creation is not the object that was sent.
var errAck = errors.New("create: answer rejected")

// ours are the labels by which 5-Spot finds an object again.
var ours = []string{v1alpha1.ScheduledMachineLabel, clusterv1.ClusterNameLabel}

// acknowledged returns err, or an error if the response to a creation of an Action has no UID, or lacks one of our
// labels that were sent. The next reconcile reads the object that exists.
func (a *Actuator) acknowledged(answer client.Object, sent map[string]string, err error) error {
	if err != nil || a.intent == nil {
		return err
	}
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

// outcomeOf maps an error to the outcome of a write. A remote error without an API status means that nothing answered.
func (a *Actuator) outcomeOf(err error) audit.Outcome {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	switch suppressed, ok := errors.AsType[Suppressed](err); {
	case err == nil:
		return audit.Success
	case ok:
		return suppressed.by
	case errors.Is(err, errAck):
		return audit.AckRejected
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return audit.Conflict
	case kinds.NoObject(err):
		return audit.NotFound
	case errors.Is(err, context.Canceled):
		return audit.Canceled
	case a.remote && !answered:
		return audit.RemoteUnreachable
	default:
		return audit.APIError
	}
}
