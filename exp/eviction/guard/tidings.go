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

// memory is of how many pods is remembered what was told. Whoever forgets tells once more.
const memory = 10_000

// tidings are what people and dashboards are told: once per pod and reason.
type tidings struct {
	recorder events.EventRecorder

	mu   sync.Mutex
	pods map[types.UID]map[string]bool
}

// answered tells what was said to somebody who evicts.
func (t *tidings) answered(said eviction.Said, dryRun bool, took time.Duration) {
	verdicts.WithLabelValues(said.Outcome).Inc()
	durations.Observe(took.Seconds())
	if dryRun || said.Outcome != verdict.Requested || said.Pod == nil {
		return
	}
	t.tell(said.Pod.UID, said.Pod, corev1.EventTypeNormal, evictionv1.RescheduleRequestedEvent,
		"%s: its operator is asked to move it away from Node %s", said.Policy, said.Pod.Spec.NodeName)
}

// failed counts an eviction about which nothing was decided.
func (t *tidings) failed(verdict string, took time.Duration) {
	verdicts.WithLabelValues(verdict).Inc()
	durations.Observe(took.Seconds())
}

// tended tells what became of a request.
func (t *tidings) tended(done eviction.Tended) {
	spec := &done.Request.Spec
	pod := spec.Pod.UID
	switch {
	case done.Fate == verdict.TakeBack, done.Fate == verdict.Drop && spec.Intent == evictionv1.IntentWithdrawn:
		t.end(pod, withdrawn)
	case done.Fate == verdict.Withdraw:
		t.tell(pod, done.Pod, corev1.EventTypeNormal, evictionv1.RescheduleWithdrawnEvent,
			"nobody wants it to leave Node %s any more: what asked its operator is taken away", spec.NodeName)
	case done.Pod == nil:
		t.tell(pod, done.Request, corev1.EventTypeNormal, evictionv1.RescheduledEvent, "pod %s has left Node %s", spec.Pod.Name, spec.NodeName)
		if done.Fate == verdict.Drop {
			outcome := moved
			if t.told(pod, evictionv1.RescheduleOverdueEvent) {
				outcome = overdue
			}
			t.end(pod, outcome)
		}
	case done.Overdue:
		t.tell(pod, done.Pod, corev1.EventTypeWarning, evictionv1.RescheduleOverdueEvent,
			"%s %s: its operator has not moved it away from Node %s in time", spec.Policy.Kind, spec.Policy.Name, spec.NodeName)
	}
}

// tell records an event that was not recorded before.
func (t *tidings) tell(pod types.UID, regarding runtime.Object, kind, reason, note string, args ...any) {
	t.mu.Lock()
	news := !t.pods[pod][reason]
	if len(t.pods) >= memory || t.pods == nil {
		t.pods = map[types.UID]map[string]bool{}
	}
	if t.pods[pod] == nil {
		t.pods[pod] = map[string]bool{}
	}
	t.pods[pod][reason] = true
	t.mu.Unlock()
	if news {
		t.recorder.Eventf(regarding, nil, kind, reason, "Reschedule", "%s", clip.Note(fmt.Sprintf(note, args...)))
	}
}

// told reports whether an event was recorded for a pod.
func (t *tidings) told(pod types.UID, reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pods[pod][reason]
}

// end counts a request that is no more.
func (t *tidings) end(pod types.UID, outcome string) {
	ended.WithLabelValues(outcome).Inc()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pods, pod)
}
