// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Bounds for the search of ancestors: the number of ancestors, and the number of restarts because an ancestor ended,
// which gives its children another parent.
const (
	maxAncestors = 64
	maxOrphaned  = 3
)

// statusFile has the user IDs of a process. See proc(5).
const statusFile = "status"

// runtimeNames are the names of processes that run pods and containers: kubelets, container runtimes, and their
// helpers. kthreadd is the parent of programs that the kernel starts, for example to collect the core dump of a pod's
// process.
var runtimeNames = []string{
	"kthreadd",
	"kubelet", "kubelite", "hyperkube", "k3s", "k3s-server", "k3s-agent", "k0s", "rke2",
	"containerd", "crio", "conmon", "conmonrs", "dockerd", "cri-dockerd",
}

// kubeletDirs are the directories of kubelets. The directories of snaps end with the first one.
var kubeletDirs = [][]byte{[]byte("/var/lib/kubelet/"), []byte("/var/lib/k0s/kubelet/")}

// WithoutKubelets returns the NUL-separated arguments. Each argument with a path below a kubelet directory is empty in
// the result.
func WithoutKubelets(argv []byte) []byte {
	arguments := bytes.Split(argv, []byte{0})
	for i, argument := range arguments {
		if slices.ContainsFunc(kubeletDirs, func(dir []byte) bool { return bytes.Contains(argument, dir) }) {
			arguments[i] = nil
		}
	}
	return bytes.Join(arguments, []byte{0})
}

// isRuntimeHelper reports whether the process, or one of its ancestors, is a kubelet or a container runtime that runs
// as root, or kthreadd. These run mount, runc, network plugins and other programs with arguments that pods choose. The
// processes of containers descend from them.
func (t *Table) isRuntimeHelper(pid int32) (bool, error) {
	for range maxOrphaned {
		helps, err := t.descends(pid)
		if !errors.Is(err, errOrphaned) {
			return helps, err
		}
	}
	return false, nil // The ancestors of a kubelet's helper do not end that often.
}

// errOrphaned means that an ancestor ended during the search.
var errOrphaned = errors.New("an ancestor ended")

func (t *Table) descends(pid int32) (bool, error) {
	for at, n := pid, 0; at > 0 && n < maxAncestors; n++ {
		st, err := t.readStat(at)
		switch {
		case err != nil && at != pid && errors.Is(err, fs.ErrNotExist):
			return false, errOrphaned
		case err != nil:
			return false, err
		}
		next := st.parent
		if isRuntimeName(st.comm) && t.runsAsRoot(at) {
			return true, nil
		}
		at = next
	}
	return false, nil
}

func isRuntimeName(comm []byte) bool {
	return slices.Contains(runtimeNames, string(comm)) || strings.HasPrefix(string(comm), "containerd-shim")
}

// runsAsRoot reports whether the real and effective user of a process is root, because any user can choose the name
// of a process. The owner of its files does not prove it: the files of a process that is not dumpable belong to root.
func (t *Table) runsAsRoot(pid int32) bool {
	raw, err := t.readHead(pid, statusFile)
	return err == nil && parseCredentials(raw).root()
}
