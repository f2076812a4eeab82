// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// limits are the fields of linux.resources by controller, with the names of the OCI runtime specification. The fields
// in "cpu" belong to two controllers. Device rules have no controller in control groups of version 2, and stay.
var limits = map[string][][]string{
	"cpu":     {{"cpu", "shares"}, {"cpu", "quota"}, {"cpu", "period"}, {"cpu", "burst"}, {"cpu", "idle"}},
	"cpuset":  {{"cpu", "cpus"}, {"cpu", "mems"}},
	"memory":  {{"memory"}},
	"pids":    {{"pids"}},
	"io":      {{"blockIO"}},
	"hugetlb": {{"hugepageLimits"}},
	"rdma":    {{"rdma"}},
}

// resource is a capability that containers request and that root in a virtual machine may lack: CAP_SYS_RESOURCE, with
// its number in <linux/capability.h>.
const (
	resource    = "CAP_SYS_RESOURCE"
	resourceBit = 24
)

// A machine is the set of features that containers can have here.
type machine struct {
	// controllers are the controllers of the root group; nil on version 1, where all limits stay.
	controllers []string
	// resource reports that root has the capability resource.
	resource bool
}

// has reports whether limits of a controller can be set.
func (m machine) has(controller string) bool {
	return m.controllers == nil || slices.Contains(m.controllers, controller)
}

func observe() (machine, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return machine{}, err
	}
	m := machine{}
	if m.resource, err = hasResource(string(status)); err != nil {
		return machine{}, err
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return machine{}, fmt.Errorf("reading controllers: %w", err)
	}
	if err == nil {
		m.controllers = append([]string{}, strings.Fields(string(controllers))...)
	}
	return m, nil
}

// hasResource parses a /proc/pid/status.
func hasResource(status string) (bool, error) {
	_, rest, ok := strings.Cut(status, "\nCapBnd:\t")
	if !ok {
		return false, fmt.Errorf("no CapBnd in %q", status)
	}
	digits, _, _ := strings.Cut(rest, "\n")
	bounding, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return false, fmt.Errorf("reading CapBnd: %w", err)
	}
	return bounding&(1<<resourceBit) != 0, nil
}

// trim removes unsupported parts from a container's configuration.
func (m machine) trim(config map[string]any) {
	m.trimProcess(object(config, "process"))
	resources := object(object(config, "linux"), "resources")
	for controller, fields := range limits {
		if m.has(controller) {
			continue
		}
		for _, path := range fields {
			last := len(path) - 1
			in := resources
			for _, name := range path[:last] {
				in = object(in, name)
			}
			delete(in, path[last])
		}
	}
	// Fields of "unified" are files of the group: <controller>.<what>.
	maps.DeleteFunc(object(resources, "unified"), func(file string, _ any) bool {
		controller, _, _ := strings.Cut(file, ".")
		return !m.has(controller)
	})
}

// trimProcess removes unsupported parts from a process.
func (m machine) trimProcess(process map[string]any) {
	if m.resource {
		return
	}
	sets := object(process, "capabilities")
	for name, set := range sets {
		all, _ := set.([]any)
		sets[name] = slices.DeleteFunc(all, func(c any) bool { return c == resource })
	}
}

// object is a field that is an object, or nil.
func object(in map[string]any, name string) map[string]any {
	o, _ := in[name].(map[string]any)
	return o
}
