// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// event is an Event about a request of the owner.
type event struct {
	At      metav1.Time `json:"at"`
	Reason  string      `json:"reason"`
	Message string      `json:"message"`
}

func (e event) text(now time.Time) string {
	return fmt.Sprintf("%s ago: %s: %s", duration.HumanDuration(now.Sub(e.At.Time)), e.Reason, e.Message)
}

// requestReasons are the reasons of Events about requests: the requester, the time, and the result.
var requestReasons = []string{
	v1alpha1.EmergencyReclaimEvent, v1alpha1.EmergencyReclaimStalledEvent, v1alpha1.EmergencySuppressedEvent,
	v1alpha1.ReclaimRequestRejectedEvent, v1alpha1.ReclaimRequestStaleEvent, v1alpha1.RecordRejectedEvent, v1alpha1.LentAgainEvent,
}

// mostEvents bounds the Events that why shows.
const mostEvents = 3

// requestEvents returns the latest Events about requests, newest first. It returns none if they cannot be read: they
// are optional, and an owner's Role does not need the permission.
func (c *cluster) requestEvents(ctx context.Context, m *v1alpha1.ScheduledMachine) []event {
	var list corev1.EventList
	if err := c.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingFields{"involvedObject.kind": kind, "involvedObject.name": m.Name}); err != nil {
		return nil
	}
	var found []event
	for i := range list.Items {
		if e := &list.Items[i]; slices.Contains(requestReasons, e.Reason) {
			found = append(found, event{At: lastSeen(e), Reason: e.Reason, Message: oneLine(e.Message)})
		}
	}
	slices.SortStableFunc(found, func(a, b event) int { return b.At.Compare(a.At.Time) })
	return found[:min(len(found), mostEvents)]
}

// lastSeen returns when an Event last happened. The field depends on the Events API that its author used.
func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.NewTime(e.Series.LastObservedTime.Time)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.NewTime(e.EventTime.Time)
	default:
		return e.CreationTimestamp
	}
}
