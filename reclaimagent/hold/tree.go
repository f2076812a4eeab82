// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"
	"strconv"
	"strings"
)

// tree is the pods below one kubepods directory of cgroup v2. A pod is its path below that directory. An error about a
// pod that was removed wraps [errPodGone].
type tree interface {
	// verify returns an error if the pod of the agent is unknown.
	verify() error
	// pods returns all pods except the agent's own.
	pods() ([]string, error)
	state(pod string) (podState, error)
	apply(pod string, c change) error
	// kill sends SIGKILL to all processes of a pod.
	kill(pod string) error
	// events returns whether all processes of a pod are frozen, and whether there is a process.
	events(pod string) (frozen, populated bool, err error)
	// processes returns the PIDs of the processes of a pod.
	processes(pod string) ([]int, error)
	close()
}

var errPodGone = errors.New("the pod does not exist")

// hasLine reports whether a file of the kernel has this line.
func hasLine(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

// parsePIDs parses a file cgroup.procs. The kernel lists a process of another PID namespace as 0.
func parsePIDs(text string) []int {
	var pids []int
	for l := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(l); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
