// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"time"
)

const (
	// maxHold is how long an upgrade waits for one emergency.
	maxHold = 10 * time.Minute
	// cleanUp is how long a deletion waits for machines beyond the longest budget of
	// their departures: infrastructure has to be taken down as well.
	cleanUp = 5 * time.Minute
	// maxNames is how many names a message has.
	maxNames = 3
)

// A machine is a Machine of a ScheduledMachine.
type machine struct {
	// Name is the ScheduledMachine's.
	Name string
	// Grace is how long a graceful departure of it may take.
	Grace time.Duration
	// Emergency is when its owner, or the kill switch, began to take it out; zero if
	// they do not.
	Emergency time.Time
}

// beforeDelete says what the deletion of a Cluster, asked for at deleted, waits for;
// nothing is empty. While the Cluster's control plane is there its machines are taken
// down in order. Whoever cannot be taken down does not keep the Cluster for ever.
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

// beforeUpgrade says what an upgrade waits for; nothing is empty. An emergency takes
// capacity away at once, and an upgrade is about to take away more.
func beforeUpgrade(now time.Time, machines []machine) string {
	leaving := slices.DeleteFunc(slices.Clone(machines), func(m machine) bool {
		return m.Emergency.IsZero() || !now.Before(m.Emergency.Add(maxHold))
	})
	if len(leaving) == 0 {
		return ""
	}
	return "waiting for ScheduledMachines that leave in an emergency: " + names(leaving)
}

// names are those of some of the machines. Messages must be the same while nothing
// changes: Cluster API copies them into conditions.
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
