// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxDeduplicated bounds the Event deduplication cache, in pods. A reset causes one duplicate Event per pod and reason.
const maxDeduplicated = 10_000

// A reporter records Events, once per pod and reason, and counts verdicts.
type reporter struct {
	recorder events.EventRecorder

	mu   sync.Mutex
	pods map[types.UID]map[string]bool
}

// answered reports the response to an eviction.
func (r *reporter) answered(resp eviction.Response, dryRun bool, took time.Duration) {
	r.count(resp.Outcome, took)
	if dryRun || resp.Outcome != verdict.Requested || resp.Pod == nil {
		return
	}
	r.record(resp.Pod.UID, resp.Pod, corev1.EventTypeNormal, evictionv1.RescheduleRequestedEvent,
		"%s: its operator is requested to move it away from Node %s", resp.Policy, resp.Pod.Spec.NodeName)
}

// count counts an eviction.
func (*reporter) count(verdict string, took time.Duration) {
	verdicts.WithLabelValues(verdict).Inc()
	durations.Observe(took.Seconds())
}

// reconciled reports the outcome of one reconcile of a request.
func (r *reporter) reconciled(done eviction.RequestResult) {
	spec := &done.Request.Spec
	pod := spec.Pod.UID
	switch {
	case done.Change == verdict.RemoveMark, done.Change == verdict.Drop && spec.Intent == evictionv1.IntentWithdrawn:
		r.end(pod, withdrawn)
	case done.Change == verdict.Withdraw:
		r.record(pod, done.Pod, corev1.EventTypeNormal, evictionv1.RescheduleWithdrawnEvent,
			"the request to its operator to move it away from Node %s is withdrawn", spec.NodeName)
	case done.Pod == nil:
		r.record(pod, done.Request, corev1.EventTypeNormal, evictionv1.RescheduledEvent, "pod %s has left Node %s", spec.Pod.Name, spec.NodeName)
		if done.Change == verdict.Drop {
			outcome := moved
			if r.recorded(pod, evictionv1.RescheduleOverdueEvent) {
				outcome = overdue
			}
			r.end(pod, outcome)
		}
	case done.Overdue:
		r.record(pod, done.Pod, corev1.EventTypeWarning, evictionv1.RescheduleOverdueEvent,
			"%s %s: its operator has not moved it away from Node %s in time", spec.Policy.Kind, spec.Policy.Name, spec.NodeName)
	}
}

// record records an Event, once per pod and reason.
func (r *reporter) record(pod types.UID, regarding runtime.Object, kind, reason, note string, args ...any) {
	r.mu.Lock()
	isNew := !r.pods[pod][reason]
	if len(r.pods) >= maxDeduplicated || r.pods == nil {
		r.pods = map[types.UID]map[string]bool{}
	}
	if r.pods[pod] == nil {
		r.pods[pod] = map[string]bool{}
	}
	r.pods[pod][reason] = true
	r.mu.Unlock()
	if isNew {
		r.recorder.Eventf(regarding, nil, kind, reason, "Reschedule", "%s", clip.Note(fmt.Sprintf(note, args...)))
	}
}

// recorded reports whether an Event was recorded for a pod.
func (r *reporter) recorded(pod types.UID, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[pod][reason]
}

// end counts a request that has ended.
func (r *reporter) end(pod types.UID, outcome string) {
	ended.WithLabelValues(outcome).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, pod)
}
