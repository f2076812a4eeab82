// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"slices"
	"strings"
)

// containerID is the length of the IDs that OCI runtimes give to containers.
const containerID = 64

// contained reports whether a process with this cgroup file belongs to a pod, a container, or the service of a kubelet
// or runtime. It supports cgroup version 1, 2 or both. It reads the path only as deep as the administrator controls the
// names: below sessions, services and scopes, ordinary users can choose names.
//
// initCgroup is the cgroup file of process 1. If the whole node is a container (kind), all paths start with its path,
// and only the remaining path counts. If the agent has its own cgroup namespace, paths outside of its container start
// with "..", for process 1 as well.
func contained(cgroup, initCgroup []byte) bool {
	for line := range bytes.Lines(cgroup) {
		hierarchy, path := cutPath(line)
		if holdsContainer(belowNode(path, nodePath(initCgroup, hierarchy))) {
			return true
		}
	}
	return false
}

// holdsContainer checks the components of a path, starting at the node's root.
func holdsContainer(path string) bool {
	previous := ""
	for component := range strings.SplitSeq(path, "/") {
		switch {
		case component == "" || component == "..":
			continue
		case isContainer(component, previous), isService(component):
			return true
		case isFilledByUsers(component):
			return false
		}
		previous = component
	}
	return false
}

// nodePath returns the path of the node in a hierarchy: the path of process 1 without systemd's init.scope, or without
// the group init that containers without systemd use.
func nodePath(initCgroup []byte, hierarchy string) string {
	for line := range bytes.Lines(initCgroup) {
		if h, path := cutPath(line); h == hierarchy {
			return strings.TrimSuffix(strings.TrimSuffix(path, "/init.scope"), "/init")
		}
	}
	return ""
}

// belowNode returns the part of a path below the node.
func belowNode(path, node string) string {
	if rest, ok := strings.CutPrefix(path, node); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// cutPath splits "hierarchy:controllers:path". A path may contain colons.
func cutPath(line []byte) (hierarchy, path string) {
	number, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
	controllers, path, _ := strings.Cut(rest, ":")
	return number + ":" + controllers, path
}

// isContainer reports whether a component names a pod or a container. These are the kubelet's slices and directories,
// scopes with the name of a runtime and an ID, a plain ID, and anything below the directories of runtimes without
// systemd.
func isContainer(name, parent string) bool {
	slice, isSlice := strings.CutSuffix(name, ".slice")
	scope, isScope := strings.CutSuffix(name, ".scope")
	switch {
	case isSlice:
		// kubepods.slice, kubepods-burstable.slice; with another cgroup root of the kubelet, as in kind,
		// kubelet-kubepods.slice.
		return slices.Contains(strings.Split(slice, "-"), "kubepods")
	case isScope:
		return isRuntimeScope(scope)
	case name == "kubepods", isID(name) && len(name) == containerID,
		strings.HasPrefix(name, "lxc.payload."), strings.HasPrefix(name, "systemd-nspawn@"):
		return true
	}
	return slices.Contains([]string{"docker", "libpod_parent", "lxc", "lxc.payload", "k8s.io"}, parent)
}

// isRuntimeScope reports whether a scope has a name of a container runtime: a prefix and an ID.
func isRuntimeScope(scope string) bool {
	for _, runtime := range []string{"cri-containerd-", "crio-", "docker-", "libpod-", "nerdctl-", "crio-conmon-", "libpod-conmon-"} {
		if id, ok := strings.CutPrefix(scope, runtime); ok && isID(id) {
			return true
		}
	}
	return false
}

// services are the units of kubelets and container runtimes. Their processes include helpers such as mount, runc and
// network plugins, with arguments that pods choose.
var services = []string{
	"kubelet.service", "containerd.service", "crio.service", "cri-o.service", "docker.service", "cri-docker.service",
	"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service",
}

// snaps are the name prefixes of these units in snaps.
var snaps = []string{"snap.microk8s.", "snap.k8s.", "snap.kubelet.", "snap.docker."}

// isService reports whether a name is the unit of a kubelet or a container runtime.
func isService(name string) bool {
	return slices.Contains(services, name) || (strings.HasSuffix(name, ".service") &&
		slices.ContainsFunc(snaps, func(prefix string) bool { return strings.HasPrefix(name, prefix) }))
}

// isFilledByUsers reports whether users other than the administrator can choose names below this cgroup: sessions, with
// or without systemd, and units.
func isFilledByUsers(name string) bool {
	return name == "user.slice" || name == "user" ||
		strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")
}

// isID reports whether a name consists of hexadecimal digits.
func isID(name string) bool {
	return name != "" && strings.Trim(name, "0123456789abcdef") == ""
}
