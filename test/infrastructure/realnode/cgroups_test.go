// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"testing"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

func TestCgroupMounts(t *testing.T) {
	const (
		v1 = `tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
`
		hybrid = v1 + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime,nsdelegate 0 0\n"
		v2     = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n"
	)
	cases := map[string]struct {
		reason, mounts string
		native         infrav1.CgroupVersion
		unified        string
		v1, v2         bool
	}{
		"V1":     {"An old system mounts version 1 alone.", v1, infrav1.CgroupV1, "", true, false},
		"Hybrid": {"systemd may mount version 2 beside it.", hybrid, infrav1.CgroupV1, "/sys/fs/cgroup/unified", true, true},
		"V2":     {"A new system mounts version 2 alone.", v2, infrav1.CgroupV2, "/sys/fs/cgroup", false, true},
		"V2Elsewhere": {
			"A container engine may mount it once more: what programs see counts.",
			v2 + "cgroup2 /run/engine cgroup2 rw 0 0\n", infrav1.CgroupV2, "/sys/fs/cgroup", false, true,
		},
		"NoMemory": {"A kubelet ends without.", "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", infrav1.CgroupV1, "", false, false},
		"Nothing":  {"A container may have none at all.", "proc /proc proc rw 0 0\n\n", infrav1.CgroupV1, "", false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := parseCgroupMounts(tc.mounts)
			if got := m.version(); got != tc.native || m.unified != tc.unified {
				t.Errorf("%s\nit sees %s, and version 2 is at %q, not %s and %q", tc.reason, got, m.unified, tc.native, tc.unified)
			}
			if err := m.lacks(infrav1.CgroupV1); (err == nil) != tc.v1 {
				t.Errorf("%s\nversion 1: %v", tc.reason, err)
			}
			if err := m.lacks(infrav1.CgroupV2); (err == nil) != tc.v2 {
				t.Errorf("%s\nversion 2: %v", tc.reason, err)
			}
		})
	}
}
