// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"slices"
	"strings"
)

// containerID is the length of the ids that OCI runtimes give containers.
const containerID = 64

// contained reports whether a process with this cgroup file belongs to a pod, to a
// container or to the service of the kubelet or a runtime, on cgroup version 1, 2
// or both. It looks at names only as far down as the administrator of the machine
// gives them: sessions, services and scopes may be filled by ordinary users, who
// give any name they like to what is below.
//
// initCgroup is the cgroup file of process 1: where the whole node is a
// container (kind), everything is below it, and only what comes after counts. A
// reader in a cgroup namespace of its own sees everything but its own container
// above itself, by "..", as it sees process 1.
func contained(cgroup, initCgroup []byte) bool {
	for line := range bytes.Lines(cgroup) {
		hierarchy, path := cutPath(line)
		if holdsContainer(belowNode(path, nodePath(initCgroup, hierarchy))) {
			return true
		}
	}
	return false
}

// holdsContainer follows a path down from the node's root.
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

// nodePath returns where the node is in a hierarchy: where process 1 is, less
// the scope that systemd puts itself in, or the group that containers without
// systemd do, so as to be able to make others beside it.
func nodePath(initCgroup []byte, hierarchy string) string {
	for line := range bytes.Lines(initCgroup) {
		if h, path := cutPath(line); h == hierarchy {
			return strings.TrimSuffix(strings.TrimSuffix(path, "/init.scope"), "/init")
		}
	}
	return ""
}

// belowNode returns the part of a path that is below the node.
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

// isContainer recognises the cgroup of a pod or a container: the slices and
// directories of the kubelet, scopes named after a runtime and an id, an id alone,
// and what is below those directories where runtimes without systemd put them.
func isContainer(name, parent string) bool {
	slice, isSlice := strings.CutSuffix(name, ".slice")
	scope, isScope := strings.CutSuffix(name, ".scope")
	switch {
	case isSlice:
		// kubepods.slice, kubepods-burstable.slice; with another root of the
		// kubelet, as in kind, kubelet-kubepods.slice.
		return slices.Contains(strings.Split(slice, "-"), "kubepods")
	case isScope:
		return isRuntimeScope(scope)
	case name == "kubepods", isID(name) && len(name) == containerID,
		strings.HasPrefix(name, "lxc.payload."), strings.HasPrefix(name, "systemd-nspawn@"):
		return true
	}
	return slices.Contains([]string{"docker", "libpod_parent", "lxc", "lxc.payload", "k8s.io"}, parent)
}

// isRuntimeScope recognises what runtimes name scopes: their name and an id.
func isRuntimeScope(scope string) bool {
	for _, runtime := range []string{"cri-containerd-", "crio-", "docker-", "libpod-", "nerdctl-", "crio-conmon-", "libpod-conmon-"} {
		if id, ok := strings.CutPrefix(scope, runtime); ok && isID(id) {
			return true
		}
	}
	return false
}

// services are the units of kubelets and container runtimes. What runs in them
// helps those: mount, runc, network plugins, with arguments that pods choose.
var services = []string{
	"kubelet.service", "containerd.service", "crio.service", "cri-o.service", "docker.service", "cri-docker.service",
	"k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service", "k0scontroller.service", "k0sworker.service",
}

// snaps are the beginnings of such units of snaps.
var snaps = []string{"snap.microk8s.", "snap.k8s.", "snap.kubelet.", "snap.docker."}

// isService recognises the unit of a kubelet or a container runtime.
func isService(name string) bool {
	return slices.Contains(services, name) || (strings.HasSuffix(name, ".service") &&
		slices.ContainsFunc(snaps, func(prefix string) bool { return strings.HasPrefix(name, prefix) }))
}

// isFilledByUsers recognises the cgroups below which others than the
// administrator may give names: sessions, with or without systemd, and units.
func isFilledByUsers(name string) bool {
	return name == "user.slice" || name == "user" ||
		strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")
}

// isID reports whether a name consists of hexadecimal digits.
func isID(name string) bool {
	return name != "" && strings.Trim(name, "0123456789abcdef") == ""
}
