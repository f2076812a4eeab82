// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFollowTakesANodeThatHasRangeAndAddress(t *testing.T) {
	node := func(ranges []string, addresses ...corev1.NodeAddress) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: ranges}, Status: corev1.NodeStatus{Addresses: addresses}}
	}
	host := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "10.0.0.9"}
	six := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00::2"}
	four := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "172.18.0.2"}
	cases := map[string]struct {
		reason string
		node   *corev1.Node
		want   string
	}{
		"Both":      {"It is all that a route needs.", node([]string{"10.244.1.0/24"}, host, four), "10.244.1.0/24 by 172.18.0.2"},
		"DualStack": {"This network knows IPv4 only.", node([]string{"fd00:1::/64", "10.244.1.0/24"}, six, four), "10.244.1.0/24 by 172.18.0.2"},
		"NoRange":   {"The controller manager has not given it one yet.", node(nil, four), ""},
		"NoAddress": {"kubelet has not said it yet, or has none of IPv4.", node([]string{"10.244.1.0/24"}, host, six), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			follow(tc.node, "", func(pods, address, _ string) error {
				got = pods + " by " + address
				return nil
			})
			if got != tc.want {
				t.Errorf("%s\nit was done for %q, not %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestConfigureWritesWhatDiffers holds the file to what containerd reads, and to be left
// alone as long as it says the same.
func TestConfigureWritesWhatDiffers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "10-kindnet.conflist")
	write := func(pods string) os.FileInfo {
		t.Helper()
		if err := configure(file, pods); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first, second, third := write("10.244.1.0/24"), write("10.244.1.0/24"), write("10.244.2.0/24")
	if !os.SameFile(first, second) || os.SameFile(second, third) {
		t.Error("the file must be written when its content changes, and only then")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if got := config.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.244.2.0/24" {
		t.Errorf("pods get addresses of %s", got)
	}
}
