// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
)

// view is the output of status for a ScheduledMachine. Its JSON is an API.
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
	Stale          bool           `json:"stale"`  // the controller has not observed the latest spec
	Paused         bool           `json:"paused"` // the object or its Cluster is paused
	// Back has what its owner has back, and what the owner waits for.
	Back []string `json:"back,omitempty"`
	// Warnings has a note if no manager seems to serve the machine.
	Warnings   []string           `json:"warnings,omitempty"`
	Conditions []metav1.Condition `json:"conditions"`

	zone  *time.Location
	state state
	idle  string
	held  bool // a rail holds a machine whose window has closed: the next closing has no effect
	// awaitsResume is true after a reclaim with resumeAfterReclaim: OnResume. The schedule may be on then.
	awaitsResume bool
}

const unreadableSchedule = "unreadable"

// viewOf copies the spec and the controllers' own messages. It does not evaluate the schedule again, so a status that
// lags behind the clock stays visible.
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
		Back:           regained(m),
		Warnings:       unservedNotes(m, now),
		idle:           idle(m),
		held:           gateOf(m) != nil,
		awaitsResume:   m.AwaitsResume(),
		Machine:        ptr.Deref(m.Status.MachineRef, v1alpha1.ChildReference{}).Name,
		Node:           ptr.Deref(m.Status.NodeRef, v1alpha1.NodeReference{}).Name,
		Conditions:     append([]metav1.Condition{}, m.Status.Conditions...), // JSON has a list, also if it is empty.
	}
	s := machineschedule.Resolve(m, now)
	v.zone, v.Schedule = s.Schedule.Zone(), s.Schedule.String()
	if s.Err != nil {
		v.Schedule = unreadableSchedule
	}
	return v
}

// why returns the one sentence that explains the phase: a pause first, then a rail that holds the machine, then the
// controller's message.
func why(m *v1alpha1.ScheduledMachine) string {
	if paused(m) {
		return pausedWhy
	}
	if gate := gateOf(m); gate != nil {
		return gate.Message
	}
	if s := withStatus(m, v1alpha1.ScheduledCondition, metav1.ConditionUnknown); s != nil {
		return s.Message
	}
	ready := conditions.Get(m, v1alpha1.ReadyCondition)
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

func (v *view) ready() string {
	if c := meta.FindStatusCondition(v.Conditions, v1alpha1.ReadyCondition); c != nil {
		return string(c.Status)
	}
	return string(metav1.ConditionUnknown)
}

// step is the next opening or closing of the window.
type step struct {
	at   time.Time
	verb string
}

// steps returns the next opening and closing, the earlier first.
func (v *view) steps() []step {
	var list []step
	if v.NextActivation != nil {
		list = append(list, step{v.NextActivation.Time, "opens"})
	}
	if v.NextCleanup != nil && !v.held {
		list = append(list, step{v.NextCleanup.Time, "closes"})
	}
	slices.SortStableFunc(list, func(a, b step) int { return a.at.Compare(b.at) })
	return list
}

// idle returns why the schedule has no effect, empty if it has one.
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

// nothingNext returns why there are no steps.
func (v *view) nothingNext() string {
	switch {
	case v.idle != "":
		return "nothing: " + v.idle
	case v.Schedule == unreadableSchedule:
		return "unknown: the schedule is unreadable"
	case v.Stale:
		return "unknown: " + notObserved
	default:
		return "never changes"
	}
}
