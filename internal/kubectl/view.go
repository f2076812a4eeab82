// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// view is what status shows of a ScheduledMachine. Its JSON is an API.
type view struct {
	Namespace      string         `json:"namespace"`
	Name           string         `json:"name"`
	Cluster        string         `json:"cluster"`
	Schedule       string         `json:"schedule"`
	Timezone       string         `json:"timezone"`
	Enabled        bool           `json:"enabled"`
	KillSwitch     bool           `json:"killSwitch"`
	Phase          v1alpha1.Phase `json:"phase"`
	InSchedule     bool           `json:"inSchedule"`
	Why            string         `json:"why"`
	NextActivation *metav1.Time   `json:"nextActivation,omitempty"`
	NextCleanup    *metav1.Time   `json:"nextCleanup,omitempty"`
	Machine        string         `json:"machine,omitempty"`
	Node           string         `json:"node,omitempty"`
	Stale          bool           `json:"stale"`  // the controller has not seen the latest spec
	Paused         bool           `json:"paused"` // nothing is done
	// Doubts say that no manager seems to serve the machine.
	Doubts     []string           `json:"doubts,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`

	zone  *time.Location
	state state
	idle  string
	kept  bool // it is to leave, and may not yet: that its window closes means nothing more
	// awaitsResume is resumeAfterReclaim: OnResume after a reclaim. The schedule may be on then.
	awaitsResume bool
}

const unreadableSchedule = "unreadable"

// viewOf reads the spec and the controllers' own words. It judges nothing again:
// where they differ from the clock, that is what there is to see.
func viewOf(m *v1alpha1.ScheduledMachine, now time.Time) view {
	v := view{
		Namespace:      m.Namespace,
		Name:           m.Name,
		Cluster:        m.Spec.ClusterName,
		Timezone:       m.Spec.Schedule.Timezone,
		Enabled:        m.ScheduleEnabled(),
		KillSwitch:     m.Spec.KillSwitch,
		Phase:          cmp.Or(m.Status.Phase, v1alpha1.PhasePending),
		InSchedule:     m.Status.InSchedule,
		Why:            why(m),
		NextActivation: m.Status.NextActivation,
		NextCleanup:    m.Status.NextCleanup,
		Stale:          m.Status.ObservedGeneration < m.Generation,
		Paused:         paused(m),
		Doubts:         doubts(m, now),
		idle:           idle(m),
		kept:           gateOf(m) != nil,
		awaitsResume:   m.AwaitsResume(),
		Conditions:     slices.Clone(m.Status.Conditions),
	}
	if v.Conditions == nil {
		v.Conditions = []metav1.Condition{}
	}
	if m.Status.MachineRef != nil {
		v.Machine = m.Status.MachineRef.Name
	}
	if m.Status.NodeRef != nil {
		v.Node = m.Status.NodeRef.Name
	}
	s, err := schedule.Parse(planned(m).Schedule)
	v.zone, v.Schedule = s.Zone(), s.String()
	if err != nil {
		v.Schedule = unreadableSchedule
	}
	return v
}

// why returns the one sentence that explains the phase: what holds the machine
// back, a pause before all else, else what the controller says.
func why(m *v1alpha1.ScheduledMachine) string {
	conditions := m.Status.Conditions
	if paused(m) {
		return pausedWhy
	}
	if gate := gateOf(m); gate != nil {
		return gate.Message
	}
	if s := meta.FindStatusCondition(conditions, v1alpha1.ScheduledCondition); s != nil && s.Status == metav1.ConditionUnknown {
		return s.Message
	}
	ready := meta.FindStatusCondition(conditions, v1alpha1.ReadyCondition)
	switch {
	case ready != nil && ready.Status != metav1.ConditionTrue && ready.Message != "":
		return ready.Message
	case m.Status.Message != "":
		return m.Status.Message
	case ready != nil:
		return ready.Message
	default:
		return "no controller has seen it yet"
	}
}

// ready is the status of the Ready condition.
func (v *view) ready() string {
	if c := meta.FindStatusCondition(v.Conditions, v1alpha1.ReadyCondition); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}

// step is something that the schedule will do.
type step struct {
	at   time.Time
	does string
}

// steps are the next opening and closing, the earlier first.
func (v *view) steps() []step {
	var list []step
	if v.NextActivation != nil {
		list = append(list, step{v.NextActivation.Time, "opens"})
	}
	if v.NextCleanup != nil && !v.kept {
		list = append(list, step{v.NextCleanup.Time, "closes"})
	}
	slices.SortStableFunc(list, func(a, b step) int { return a.at.Compare(b.at) })
	return list
}

// idle says why nothing follows from the schedule, empty if something does.
func idle(m *v1alpha1.ScheduledMachine) string {
	switch {
	case paused(m):
		return "paused"
	case !m.DeletionTimestamp.IsZero():
		return "it is being deleted"
	case m.Spec.KillSwitch:
		return "the kill switch is on"
	case m.BeingReclaimed():
		return "its schedule is being turned off"
	case m.AwaitsResume():
		return "kept away until it is resumed"
	case !m.ScheduleEnabled():
		return "disabled"
	default:
		return ""
	}
}

// nothingNext says why there are no steps.
func (v *view) nothingNext() string {
	switch {
	case v.idle != "":
		return "nothing: " + v.idle
	case v.Schedule == unreadableSchedule:
		return "unknown: the schedule is unreadable"
	case v.Stale:
		return "unknown: " + unseen
	default:
		return "never changes"
	}
}
