// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// host describes this machine in a line.
func host() string {
	return fmt.Sprintf("%d × %s, %s memory, %s, Kubernetes %s, %s",
		runtime.NumCPU(), firstOf("/proc/cpuinfo", `(?m)^model name\s*: (.*)$`, runtime.GOARCH),
		firstOf("/proc/meminfo", `(?m)^MemTotal:\s*(.*)$`, "unknown"), kernel(), plane.Version, runtime.Version())
}

// load is the machine's load over one, five and fifteen minutes.
func load() string { return firstOf("/proc/loadavg", `^(\S+ \S+ \S+)`, "unknown") }

func firstOf(path, expression, fallback string) string {
	b, err := os.ReadFile(path) //nolint:gosec // files of the kernel
	if err != nil {
		return fallback
	}
	found := regexp.MustCompile(expression).FindSubmatch(b)
	if found == nil {
		return fallback
	}
	return strings.TrimSpace(string(found[1]))
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
