// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// Reasons of fivespot_reclaim_requests_screened_total.
const (
	screenedStale        = "stale"
	screenedForeignHost  = "foreign_host"
	screenedControlPlane = "control_plane"
)

var screenedNotes = map[string]string{
	screenedStale: "Node %s has a request that is older than its Machine: the request is removed, and the machine stays",
	screenedForeignHost: "Node %s has a request, but its providerID is not the Machine's, or its machine ID is not the one it first reported: nothing is done. " +
		"Is it another host that took the name? Compare them with status.providerID and status.nodeRef",
	screenedControlPlane: "Node %s has a request, but its Machine belongs to a control plane, which an owner's request never removes: " +
		"delete the Machine to remove it",
}

// screened returns the reason why a request is not served, empty if it is served or there is none.
func screened(f lifecycle.ReclaimFacts, step lifecycle.Step) string {
	switch {
	case step == lifecycle.DropRequest, step == lifecycle.Refuse && f.ControlPlane:
		return screenedControlPlane
	case step == lifecycle.Refuse:
		return screenedForeignHost
	case step == lifecycle.Clear && f.Request == lifecycle.StaleRequest:
		return screenedStale
	default:
		return ""
	}
}

// reportScreened records an Event and a metric for a request that is not served, once per request.
func (r *Reconciler) reportScreened(ctx context.Context, s *scope, why string) {
	if why == "" {
		return
	}
	record := s.request()
	if s.node != nil {
		record = recordOf(s.node)
	}
	key := client.ObjectKeyFromObject(s.scheduled)
	this := why + " " + record.String()
	if last, ok := r.lastScreened.Swap(key, this); ok && last == this {
		return
	}
	screenedRequests.WithLabelValues(why).Inc()
	ctrl.LoggerFrom(ctx).Info("Did not serve a request", "Node", record.Node, "why", why, "reason", record.Why())
	kind, reason := corev1.EventTypeWarning, v1alpha1.ReclaimRequestRejectedEvent
	if why == screenedStale {
		kind, reason = corev1.EventTypeNormal, v1alpha1.ReclaimRequestStaleEvent
	}
	r.Recorder.Eventf(s.scheduled, nil, kind, reason, "EmergencyReclaim", screenedNotes[why], record.Node)
}

// reportAnnotations reports malformed request annotations on the Node, once. It records an Event only if the Node has
// no request, so that Events do not delay an owner.
func (r *Reconciler) reportAnnotations(ctx context.Context, s *scope) {
	if s.node == nil {
		return // The Node was not read, or cannot be read: nothing has changed.
	}
	request := requestOn(s.node)
	for _, n := range r.rejections.ReportNew(ctx, client.ObjectKeyFromObject(s.scheduled), ingest.ScreenRequest(request)) {
		if !request.Requested {
			r.Recorder.Eventf(s.scheduled, nil, corev1.EventTypeWarning, v1alpha1.RecordRejectedEvent, "ScreenRecords", "%s", n.Message)
		}
	}
}

// announce reports a reclaim that has started. Callers call it after the Machine's deletion, because recording an Event
// delays the API server, and so the owner. A crash in between loses the Events and the count of this request.
func (r *Reconciler) announce(ctx context.Context, s *scope, rapid bool) {
	sm, record := s.scheduled, s.request()
	reclaims.WithLabelValues(sm.Namespace, sm.Spec.ClusterName).Inc()
	r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimEvent, "EmergencyReclaim", "%s", record.Requested())
	if rapid {
		rapidReReclaims.Inc()
		r.Recorder.Eventf(sm, nil, corev1.EventTypeWarning, v1alpha1.RapidReReclaimEvent, "EmergencyReclaim",
			"Reclaimed %d times within %s, last for: %s. Its owner is working: leave the schedule off until they are done, or change spec.killIfCommands",
			len(sm.ReclaimTimes()), lifecycle.RapidWindow, record.Why())
	}
	r.reportSurge(ctx, s)
}

// reportStalled records an Event for a reclaim that does not proceed, once per class of cause.
func (r *Reconciler) reportStalled(req ctrl.Request, s *scope, class string, err error) {
	why := "it cannot be given back yet, and 5-Spot retries: " + clip.Line(err.Error())
	if r.ReclaimTracker.RecordStuck(req, "because "+class, why) {
		r.Recorder.Eventf(s.scheduled, nil, corev1.EventTypeWarning, v1alpha1.EmergencyReclaimStalledEvent, "EmergencyReclaim",
			"The owner wants the machine, but %s", why)
	}
}

// reportSurge records an Event on the Cluster if many of its machines are reclaimed at once. It counts the records on
// the ScheduledMachines, so that a restart loses none.
func (r *Reconciler) reportSurge(ctx context.Context, s *scope) {
	now := r.Clock.Now()
	if s.cluster == nil || r.surges.Reached(client.ObjectKeyFromObject(s.cluster), now) {
		return
	}
	list := &v1alpha1.ScheduledMachineList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(s.cluster.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Counting reclaims of Cluster")
		return
	}
	reclaims, machines := 0, 0
	for i := range list.Items {
		sm := &list.Items[i]
		if sm.Name == s.scheduled.Name {
			sm = s.scheduled // The cache may not have this request yet.
		}
		recent := len(lifecycle.Recent(sm.ReclaimTimes(), now))
		reclaims += recent
		if recent > 0 || sm.Status.Phase == v1alpha1.PhaseActive {
			machines++
		}
	}
	if !lifecycle.Surge(reclaims, machines) || !r.surges.Allow(client.ObjectKeyFromObject(s.cluster), now) {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Many machines are being reclaimed", "reclaims", reclaims, "machines", machines)
	r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.EmergencySurgeEvent, "EmergencyReclaim",
		"%d emergency reclaims within %s among %d machines. Nothing is delayed. "+
			"Does an update or a rollout start a program of spec.killIfCommands everywhere?", reclaims, lifecycle.RapidWindow, machines)
}
