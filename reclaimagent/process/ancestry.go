// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Bounds of a look at ancestors: how many there may be, and how often one may end
// meanwhile, which gives its children another parent.
const (
	maxAncestors = 64
	maxOrphaned  = 3
)

// statusFile has the user ids of a process. See proc(5).
const statusFile = "status"

// keepers are the names of those who run pods and containers: kubelets, runtimes,
// and what they leave with each container; and of the kernel's own, because that runs
// programs, too, such as one that looks at what a pod's process leaves when it crashes.
var keepers = []string{
	"kthreadd",
	"kubelet", "kubelite", "hyperkube", "k3s", "k3s-server", "k3s-agent", "k0s", "rke2",
	"containerd", "crio", "conmon", "conmonrs", "dockerd", "cri-dockerd",
}

// kubeletDirs are the directories of kubelets. Those of snaps end like the first.
var kubeletDirs = [][]byte{[]byte("/var/lib/kubelet/"), []byte("/var/lib/k0s/kubelet/")}

// WithoutKubelets returns arguments, separated by NULs, of which those are empty that name
// anything below a kubelet's directory.
func WithoutKubelets(argv []byte) []byte {
	arguments := bytes.Split(argv, []byte{0})
	for i, argument := range arguments {
		if slices.ContainsFunc(kubeletDirs, func(dir []byte) bool { return bytes.Contains(argument, dir) }) {
			arguments[i] = nil
		}
	}
	return bytes.Join(arguments, []byte{0})
}

// helps reports whether the process pid, or one that it descends from, is a kubelet
// or a container runtime. Those run mount, runc, network plugins and much else
// with arguments that pods choose, and containers' processes descend from them.
func (t *Table) helps(pid int32) (bool, error) {
	for range maxOrphaned {
		helps, err := t.descends(pid)
		if !errors.Is(err, errOrphaned) {
			return helps, err
		}
	}
	return false, nil // its ancestors come and go as no kubelet's do
}

// errOrphaned reports that an ancestor ended while its descendants were followed.
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
		if isKeeper(st.comm) && t.administrators(at) {
			return true, nil
		}
		at = next
	}
	return false, nil
}

func isKeeper(comm []byte) bool {
	return slices.Contains(keepers, string(comm)) || strings.HasPrefix(string(comm), "containerd-shim")
}

// administrators reports whether a process runs as root, by its real and effective
// user: anybody may give a process a name. Who owns its files does not tell, for
// those of a process that hides its memory are root's.
func (t *Table) administrators(pid int32) bool {
	raw, err := t.readHead(pid, statusFile)
	return err == nil && parseCredentials(raw).root()
}
