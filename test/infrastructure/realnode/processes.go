// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Process is a process of this machine.
type Process struct {
	PID int
	// Name is the kernel's name of it, at most 15 bytes.
	Name string

	parent int
	// start distinguishes it from other processes with its PID.
	start string
	// ended reports that it is a zombie.
	ended bool
}

// Alive reports whether it still runs.
func (p Process) Alive() bool {
	now, ok := processOf(p.PID)
	return ok && now.start == p.start && !now.ended
}

// Frozen reports whether all processes of its control group, of version 2, are frozen.
func (p Process) Frozen() (bool, error) {
	events, err := p.groupFile("cgroup.events")
	return strings.Contains("\n"+events, "\nfrozen 1\n"), err
}

// CPU returns the CPU time that its control group, of version 2, has used.
func (p Process) CPU() (time.Duration, error) {
	stat, err := p.groupFile("cpu.stat")
	if err != nil {
		return 0, err
	}
	var micros int64
	_, err = fmt.Sscanf(stat, "usage_usec %d", &micros) // the first line
	return time.Duration(micros) * time.Microsecond, err
}

// groupFile reads a file of its control group of version 2.
func (p Process) groupFile(name string) (string, error) {
	mounts, err := readCgroupMounts()
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
	if err != nil {
		return "", err
	}
	_, path, ok := strings.Cut("\n"+string(groups), "\n0::")
	if !ok || mounts.unified == "" {
		return "", errors.New("the process is in no control group of version 2")
	}
	path, _, _ = strings.Cut(path, "\n")
	text, err := os.ReadFile(filepath.Join(mounts.unified, path, name)) //nolint:gosec // a file of the kernel
	return string(text), err
}

// Below lists the descendants of pid, parents first.
func Below(pid int) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]Process{}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := processOf(n); ok {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	below := children[pid]
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i].PID]...)
	}
	return below
}

// processOf parses /proc/<pid>/stat. Its second field, a name in parentheses, may contain any characters.
func processOf(pid int) (Process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, false
	}
	head, rest, _ := strings.Cut(string(b), "(")
	end := strings.LastIndexByte(rest, ')')
	if head == "" || end < 0 {
		return Process{}, false
	}
	fields := strings.Fields(rest[end+1:])
	const state, parent, start = 0, 1, 19 // fields 3, 4 and 22 of proc(5)
	if len(fields) <= start {
		return Process{}, false
	}
	p := Process{PID: pid, Name: rest[:end], start: fields[start], ended: fields[state] == "Z"}
	p.parent, _ = strconv.Atoi(fields[parent])
	return p, true
}
