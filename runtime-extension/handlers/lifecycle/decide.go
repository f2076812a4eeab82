// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"time"
)

const (
	// maxHold is the maximum time that an upgrade waits for one emergency.
	maxHold = 10 * time.Minute
	// cleanUp is how long a deletion waits for machines in addition to the longest budget of their departures, because
	// the infrastructure must be removed as well.
	cleanUp = 5 * time.Minute
	// maxNames is the maximum number of names in a message.
	maxNames = 3
)

// machine is a Machine of a ScheduledMachine.
type machine struct {
	// Name is the name of the ScheduledMachine.
	Name string
	// Grace is the time that its graceful departure may take.
	Grace time.Duration
	// Emergency is when the owner or the kill switch started to remove it. It is zero if neither does.
	Emergency time.Time
}

// beforeDelete returns what the deletion of a Cluster waits for, empty for nothing. deleted is its deletion timestamp.
// Until the hook passes, the control plane exists and machines can leave in order. A machine that cannot be removed
// delays the Cluster only for a limited time.
func beforeDelete(now, deleted time.Time, machines []machine) string {
	longest := time.Duration(0)
	for _, m := range machines {
		longest = max(longest, m.Grace)
	}
	if len(machines) == 0 || !now.Before(deleted.Add(longest+cleanUp)) {
		return ""
	}
	return "waiting for ScheduledMachines to leave: " + names(machines)
}

// beforeUpgrade returns what an upgrade waits for, empty for nothing. An emergency has just reduced the capacity, and
// an upgrade reduces it further.
func beforeUpgrade(now time.Time, machines []machine) string {
	leaving := slices.DeleteFunc(slices.Clone(machines), func(m machine) bool {
		return m.Emergency.IsZero() || !now.Before(m.Emergency.Add(maxHold))
	})
	if len(leaving) == 0 {
		return ""
	}
	return "waiting for ScheduledMachines that leave in an emergency: " + names(leaving)
}

// names returns the names of at most maxNames machines, sorted. The same machines give the same text, because Cluster
// API copies it into conditions.
func names(machines []machine) string {
	var all []string
	for _, m := range machines {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) > maxNames {
		return strings.Join(all[:maxNames], ", ") + " and others"
	}
	return strings.Join(all, ", ")
}
