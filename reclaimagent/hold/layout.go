// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"cmp"
	"strings"
)

// layout is how a cgroup driver of the kubelet names the cgroups of pods: the name of the uppermost slice without its
// suffix, empty for cgroupfs.
//
//	cgroupfs: kubepods/{,burstable/,besteffort/}pod<UID>
//	systemd:  kubepods.slice/{,kubepods-burstable.slice/,kubepods-besteffort.slice/}kubepods-{,burstable-,besteffort-}pod<UID>.slice
//
// With a cgroup root of the kubelet, as in kind, the names of systemd begin with the root's name: kubelet-kubepods.
type layout string

const sliceSuffix = ".slice"

// layoutOf returns the layout below a directory, and whether the directory is the uppermost of the pods.
func layoutOf(directory string) (layout, bool) {
	if directory == "kubepods" {
		return "", true
	}
	slice, isSlice := strings.CutSuffix(directory, sliceSuffix)
	return layout(slice), isSlice && (slice == "kubepods" || strings.HasSuffix(slice, "-kubepods"))
}

// classes returns the directories of the classes of service. Pods of the class Guaranteed are directly below kubepods.
func (l layout) classes() []string {
	if l == "" {
		return []string{"burstable", "besteffort"}
	}
	return []string{string(l) + "-burstable" + sliceSuffix, string(l) + "-besteffort" + sliceSuffix}
}

// isPod reports whether a directory of a class is a pod. The class Guaranteed is empty.
func (l layout) isPod(class, name string) bool {
	if l == "" {
		uid, ok := strings.CutPrefix(name, "pod")
		return ok && isUID(uid, "-_.")
	}
	parent := cmp.Or(strings.TrimSuffix(class, sliceSuffix), string(l))
	name, isSlice := strings.CutSuffix(name, sliceSuffix)
	uid, ok := strings.CutPrefix(name, parent+"-pod")
	return ok && isSlice && isUID(uid, "_.") // a hyphen would be one more level of slices
}

// isStatic reports whether a pod comes from a manifest on the host. The kubelet gives it a hash of 32 digits as UID, where
// the API server gives a UUID: see applyDefaults in pkg/kubelet/config/common.go. Such pods belong to the host, and the
// request may pass through one: a proxy of the API server.
func isStatic(pod string) bool {
	uid := strings.TrimSuffix(pod[strings.LastIndex(pod, "pod")+len("pod"):], sliceSuffix)
	return len(uid) == 32 && strings.Trim(uid, "0123456789abcdef") == ""
}

// isUID reports whether the kubelet may have given a cgroup this UID. The manifest of a static pod may choose its own.
func isUID(uid, punctuation string) bool {
	return uid != "" && strings.IndexFunc(uid, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(punctuation, r)
	}) < 0
}

// podOf splits the path of a cgroup into the uppermost directory of the pods, and the pod below it. The innermost pod
// counts: a whole node may run in a pod. ok is false for a path that is not in a pod.
func podOf(path string) (kubepods, pod string, ok bool) {
	components := strings.Split(path, "/")
	for i := len(components) - 2; i >= 0; i-- {
		l, isKubepods := layoutOf(components[i])
		if !isKubepods {
			continue
		}
		kubepods, below := strings.Join(components[:i+1], "/"), components[i+1:]
		if l.isPod("", below[0]) {
			return kubepods, below[0], true
		}
		for _, class := range l.classes() {
			if len(below) > 1 && below[0] == class && l.isPod(class, below[1]) {
				return kubepods, class + "/" + below[1], true
			}
		}
	}
	return "", "", false
}
