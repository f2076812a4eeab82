// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
)

// plugins is the file that containerd waits for.
const plugins = "/etc/cni/net.d/10-kindnet.conflist"

// conflist is its content. host-local stores addresses below /run, so they vanish when the node restarts, as its pods
// do.
const conflist = `{"cniVersion": "0.3.1", "name": "kindnet", "plugins": [{
  "type": "ptp", "ipMasq": true,
  "ipam": {
    "type": "host-local", "dataDir": "/run/cni-ipam-state",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]
  }
}]}
`

// configure writes the configuration of the plugins only if it differs: containerd reads the file after every write.
func configure(file, pods string) error {
	want := fmt.Sprintf(conflist, pods)
	if is, err := os.ReadFile(file); err == nil && string(is) == want { //nolint:gosec // a constant path
		return nil
	}
	// containerd must not read an incomplete file.
	if err := os.WriteFile(file+".tmp", []byte(want), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// route returns the route to the pods of a node by the node's address.
func route(pods, address string) (*netlink.Route, error) {
	_, dst, err := net.ParseCIDR(pods)
	if err != nil {
		return nil, err
	}
	gw := net.ParseIP(address)
	if gw == nil {
		return nil, errors.New("no address: " + address)
	}
	return &netlink.Route{Dst: dst, Gw: gw}, nil
}

// first returns the first range of IPv4 addresses, empty if there is none.
func first(ranges []string) string {
	for _, r := range ranges {
		if p, err := netip.ParsePrefix(r); err == nil && p.Addr().Is4() {
			return r
		}
	}
	return ""
}

// internal returns the IPv4 address at which other nodes reach a node, empty if there is none.
func internal(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
