// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// cgroupMount is the standard mount point of control groups.
const cgroupMount = "/sys/fs/cgroup"

// Group is the name of the control groups of the node in dir.
func Group(dir string) string { return filepath.Base(dir) }

// cgroupMounts are the mounted control groups of this machine.
type cgroupMounts struct {
	// paths are their mount points: one in version 2, about one per controller in version 1.
	paths []string
	// controllers are the controllers of version 1.
	controllers []string
	// unified is the mount point of version 2, empty if there is none.
	unified string
}

func readCgroupMounts() (cgroupMounts, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	return parseCgroupMounts(string(text)), err
}

// parseCgroupMounts reads /proc/self/mounts.
func parseCgroupMounts(text string) cgroupMounts {
	var m cgroupMounts
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		path, kind, options := fields[1], fields[2], fields[3]
		switch {
		case kind == "cgroup":
			m.controllers = append(m.controllers, strings.Split(options, ",")...)
		case kind != "cgroup2":
			continue
		case m.unified == "" || path == cgroupMount:
			m.unified = path
		}
		m.paths = append(m.paths, path)
	}
	return m
}

// groups returns the paths of a node's control groups.
func (m cgroupMounts) groups(dir string) []string {
	groups := make([]string, len(m.paths))
	for i, path := range m.paths {
		groups[i] = filepath.Join(path, Group(dir))
	}
	return groups
}

// version is the version that programs on this machine see.
func (m cgroupMounts) version() infrav1.CgroupVersion {
	if m.unified == cgroupMount {
		return infrav1.CgroupV2
	}
	return infrav1.CgroupV1
}

// lacks returns an error if a node cannot have that version here.
func (m cgroupMounts) lacks(version infrav1.CgroupVersion) error {
	if version == infrav1.CgroupV2 {
		if m.unified == "" {
			return errors.New("control groups of version 2 are mounted nowhere")
		}
		return nil
	}
	if m.version() != infrav1.CgroupV1 {
		return fmt.Errorf("%s is of version 2", cgroupMount)
	}
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory"} { // a kubelet requires them
		if !slices.Contains(m.controllers, c) {
			return fmt.Errorf("no controller %s of version 1 is mounted", c)
		}
	}
	return nil
}
