// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"strings"
)

// containerID is the length of the ids that OCI runtimes give containers.
const containerID = 64

// contained reports whether a process with this cgroup file belongs to a pod or
// to a container, on cgroup version 1, 2 or both. Its owner may be anyone:
// a container that the owner of the machine started, rootless or not, is a
// container too. Sessions, user services and desktop applications, which
// systemd keeps in scopes of user.slice, are not.
//
// initCgroup is the cgroup file of process 1: where the whole node is a
// container (kind), everything is below it, and only what comes after counts.
func contained(cgroup, initCgroup []byte) bool {
	for line := range bytes.Lines(cgroup) {
		hierarchy, path := cutPath(line)
		path = strings.TrimPrefix(path, nodePath(initCgroup, hierarchy))
		previous := ""
		for component := range strings.SplitSeq(path, "/") {
			if isContainer(component) || (component != "" && isParent(previous)) {
				return true
			}
			previous = component
		}
	}
	return false
}

// nodePath returns where the node is in a hierarchy: where process 1 is, less
// the scope that systemd puts itself in.
func nodePath(initCgroup []byte, hierarchy string) string {
	for line := range bytes.Lines(initCgroup) {
		if h, path := cutPath(line); h == hierarchy {
			return strings.TrimSuffix(path, "/init.scope")
		}
	}
	return ""
}

// cutPath splits "hierarchy:controllers:path". A path may contain colons.
func cutPath(line []byte) (hierarchy, path string) {
	number, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
	controllers, path, _ := strings.Cut(rest, ":")
	return number + ":" + controllers, path
}

// isContainer recognises the cgroup of a pod or a container by its own name:
// kubepods, kubepods.slice, kubelet-kubepods-burstable.slice; a container id,
// alone or in a name; lxc.payload.NAME; systemd-nspawn@NAME.service; and scopes
// named after a runtime.
func isContainer(name string) bool {
	if strings.HasPrefix(name, "kubepods") || strings.Contains(name, "-kubepods") ||
		strings.HasPrefix(name, "lxc.payload.") || strings.HasPrefix(name, "systemd-nspawn@") {
		return true
	}
	scope, isScope := strings.CutSuffix(name, ".scope")
	for _, runtime := range []string{"cri-containerd-", "crio-", "docker-", "libpod-", "nerdctl-"} {
		if id, ok := strings.CutPrefix(scope, runtime); ok && isScope && hexRun(id) == len(id) && id != "" {
			return true
		}
	}
	return hexRun(name) == containerID
}

// isParent recognises the cgroups below which runtimes without systemd put
// their containers.
func isParent(name string) bool {
	return name == "docker" || name == "libpod_parent" || name == "lxc" || name == "k8s.io"
}

// hexRun returns the length of the longest run of hexadecimal digits.
func hexRun(s string) int {
	longest, run := 0, 0
	for _, c := range []byte(s) {
		if ('0' <= c && c <= '9') || ('a' <= c && c <= 'f') {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	return longest
}
