// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// Programs are the programs that a real node needs from the directory of the plane.
func programs() []string {
	return []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "pause", "plane-runc", "cni/ptp", "cni/host-local", "cni/loopback"}
}

// Supported returns an error if real nodes cannot run here. bin is the directory of the plane's programs. Control
// groups are checked by SupportedCgroups.
func Supported(bin string) error {
	if runtime.GOOS != "linux" {
		return errors.New("real nodes need Linux")
	}
	if os.Geteuid() != 0 {
		return errors.New("real nodes need root")
	}
	for _, p := range programs() {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return fmt.Errorf("real nodes need `make plane-binaries`: %w", err)
		}
	}
	for _, p := range []string{"runc", "ip", "mount", "sh"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("real nodes need %s, try `make plane-node-deps`: %w", p, err)
		}
	}
	if _, err := address(); err != nil {
		return err
	}
	return nil
}

// SupportedCgroups returns an error if a real node cannot have control groups of a version here.
func SupportedCgroups(version infrav1.CgroupVersion) error {
	mounts, err := readCgroupMounts()
	if err != nil {
		return err
	}
	if err := mounts.lacks(version); err != nil {
		return fmt.Errorf("real nodes cannot see control groups of version %s: %w", version, err)
	}
	return nil
}

// address is the Node's address: a kubelet rejects loopback addresses.
func address() (net.IP, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil && !onLoopback(n) {
			return n.IP.To4(), nil
		}
	}
	return nil, errors.New("real nodes need an IPv4 address that is not loopback")
}

// onLoopback reports whether n is a Service address: these are /32 on the loopback interface.
func onLoopback(n *net.IPNet) bool {
	ones, bits := n.Mask.Size()
	return ones == bits
}
