// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// AgentConfig returns the configuration of the machine's reclaim agent. It is inert if the machine needs no agent.
func (s *ScheduledMachineSpec) AgentConfig() reclaim.Config {
	c := reclaim.ConfigFor(s.KillIfCommands)
	c.Hold = s.ReclaimHold
	return c
}

// HoldsPods reports whether the machine's agent holds the pods of its Node for the owner.
func (s *ScheduledMachineSpec) HoldsPods() bool {
	return s.ReclaimHold.Enabled() && !s.AgentConfig().Inert()
}

// BeingReclaimed reports whether an emergency reclaim is in progress: a recorded request that has not been served yet.
func (m *ScheduledMachine) BeingReclaimed() bool {
	_, ok := m.Annotations[EmergencyReclaimAnnotation]
	return ok
}

// ReclaimRequest returns the request in progress, and false if there is none.
func (m *ScheduledMachine) ReclaimRequest() (ReclaimRecord, bool) {
	return m.reclaimRecord(EmergencyReclaimAnnotation)
}

// ServedReclaim returns the request that turned the schedule off. It returns false if there is none, or if the schedule
// has been turned on since.
func (m *ScheduledMachine) ServedReclaim() (ReclaimRecord, bool) {
	return m.reclaimRecord(ReclaimedAnnotation)
}

// SetServedReclaim records the request that turned the schedule off.
func (m *ScheduledMachine) SetServedReclaim(record ReclaimRecord) {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, ReclaimedAnnotation, record.String())
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, LastReclaimAnnotation, record.String())
}

// LastReclaim returns the request that was served last, even if the schedule has been turned on since. It returns false
// if none is recorded.
func (m *ScheduledMachine) LastReclaim() (ReclaimRecord, bool) {
	if record, served := m.ServedReclaim(); served {
		return record, true
	}
	return m.reclaimRecord(LastReclaimAnnotation)
}

// AwaitsResume reports whether the machine stays out of the cluster, whatever schedule.enabled is, until a person
// removes the record of its reclaim.
func (m *ScheduledMachine) AwaitsResume() bool {
	_, served := m.Annotations[ReclaimedAnnotation]
	return served && m.Spec.ResumeAfterReclaim == ResumeOnResume
}

// Reclaimed returns the request that gave, or gives, the machine back to its owner. It returns false if there is none.
func (m *ScheduledMachine) Reclaimed() (ReclaimRecord, bool) {
	if record, asked := m.ReclaimRequest(); asked {
		return record, true
	}
	record, served := m.ServedReclaim()
	return record, served && !m.ScheduleEnabled()
}

func (m *ScheduledMachine) reclaimRecord(annotation string) (ReclaimRecord, bool) {
	value, ok := m.Annotations[annotation]
	if !ok {
		return ReclaimRecord{}, false
	}
	return ParseReclaimRecord(value), true
}

// ReclaimTimes returns the times of recent reclaims from ReclaimTimesAnnotation. It skips values that are not times.
func (m *ScheduledMachine) ReclaimTimes() []time.Time {
	var times []time.Time
	for value := range strings.SplitSeq(m.Annotations[ReclaimTimesAnnotation], ",") {
		if t, err := time.Parse(time.RFC3339, value); err == nil {
			times = append(times, t)
		}
	}
	return times
}

// SetReclaimTimes writes the annotation that ReclaimTimes reads, in whole seconds.
func (m *ScheduledMachine) SetReclaimTimes(times []time.Time) {
	values := make([]string, len(times))
	for i, t := range times {
		values[i] = t.UTC().Format(time.RFC3339)
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, ReclaimTimesAnnotation, strings.Join(values, ","))
}
