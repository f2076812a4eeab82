// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// limits names the controller behind each part of linux.resources. Device rules have none
// in control groups of version 2, and stay.
var limits = map[string]string{
	"cpu": "cpu", "memory": "memory", "pids": "pids", "blockIO": "io", "hugepageLimits": "hugetlb", "rdma": "rdma",
}

// resource is the capability that containers ask for and root in a virtual machine may
// lack: CAP_SYS_RESOURCE, by the number of <linux/capability.h>.
const (
	resource    = "CAP_SYS_RESOURCE"
	resourceBit = 24
)

// A machine is what containers can have here.
type machine struct {
	controllers map[string]bool
	resource    bool
}

func observe() (machine, error) {
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return machine{}, fmt.Errorf("reading controllers: %w", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return machine{}, err
	}
	return parseMachine(string(controllers), string(status))
}

// parseMachine reads cgroup.controllers of the root of the tree, and a /proc/pid/status.
func parseMachine(controllers, status string) (machine, error) {
	m := machine{controllers: map[string]bool{}}
	for c := range strings.FieldsSeq(controllers) {
		m.controllers[c] = true
	}
	_, rest, ok := strings.Cut(status, "\nCapBnd:\t")
	if !ok {
		return m, fmt.Errorf("no CapBnd in %q", status)
	}
	digits, _, _ := strings.Cut(rest, "\n")
	bounding, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return m, fmt.Errorf("reading CapBnd: %w", err)
	}
	m.resource = bounding&(1<<resourceBit) != 0
	return m, nil
}

// trim takes out of a container's configuration what cannot be had here.
func (m machine) trim(config map[string]any) {
	if p, ok := config["process"].(map[string]any); ok {
		m.trimProcess(p)
	}
	linux, _ := config["linux"].(map[string]any)
	resources, ok := linux["resources"].(map[string]any)
	if !ok {
		return
	}
	for part, controller := range limits {
		if !m.controllers[controller] {
			delete(resources, part)
		}
	}
	unified, _ := resources["unified"].(map[string]any)
	for file := range unified {
		if controller, _, _ := strings.Cut(file, "."); !m.controllers[controller] {
			delete(unified, file)
		}
	}
}

// trimProcess takes out of a process what cannot be had here.
func (m machine) trimProcess(process map[string]any) {
	if m.resource {
		return
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		var kept []any
		for _, c := range asList(set) {
			if c != resource {
				kept = append(kept, c)
			}
		}
		sets[name] = kept
	}
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}
