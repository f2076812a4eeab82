// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"time"
)

// ReclaimTimes returns when the machine was last reclaimed, as its annotation
// says. What is no time is left out.
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
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[ReclaimTimesAnnotation] = strings.Join(values, ",")
}
