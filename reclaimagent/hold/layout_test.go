// SPDX-License-Identifier: Apache-2.0

package hold

import "testing"

func TestPodOf(t *testing.T) {
	const uid, underscored = "0d0c6a1e-4a62-4d0b-93d5-6f4a1b6f0a11", "0d0c6a1e_4a62_4d0b_93d5_6f4a1b6f0a11"
	cases := map[string]struct{ path, kubepods, pod string }{
		"Guaranteed":        {"kubepods/pod" + uid + "/abc", "kubepods", "pod" + uid},
		"Burstable":         {"kubepods/burstable/pod" + uid + "/abc", "kubepods", "burstable/pod" + uid},
		"BestEffort":        {"kubepods/besteffort/pod" + uid, "kubepods", "besteffort/pod" + uid},
		"StaticPod":         {"kubepods/burstable/pod2b1d4c0ffee0a2b3c4d5e6f708192a3b/x/y", "kubepods", "burstable/pod2b1d4c0ffee0a2b3c4d5e6f708192a3b"},
		"KindCgroupfs":      {"kubelet/kubepods/burstable/pod" + uid + "/c", "kubelet/kubepods", "burstable/pod" + uid},
		"SystemdGuaranteed": {"kubepods.slice/kubepods-pod" + underscored + ".slice/cri-containerd-x.scope", "kubepods.slice", "kubepods-pod" + underscored + ".slice"},
		"SystemdBurstable":  {"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/c.scope", "kubepods.slice", "kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice"},
		"SystemdBestEffort": {"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice", "kubepods.slice", "kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice"},
		"Kind":              {"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1.slice/c.scope", "kubelet.slice/kubelet-kubepods.slice", "kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1.slice"},
		"NodeInAPod":        {"kubepods/podouter/ctr/kubelet/kubepods/burstable/podinner/c", "kubepods/podouter/ctr/kubelet/kubepods", "burstable/podinner"},
		"NamedInside":       {"kubepods/podouter/ctr/kubepods/x", "kubepods", "podouter"},
		"Host":              {"system.slice/reclaim-agent.service", "", ""},
		"Root":              {"", "", ""},
		"NotInAPod":         {"kubepods/burstable", "", ""},
		"NoUID":             {"kubepods/pod/x", "", ""},
		"HostileUID":        {"kubepods/pod1\n/x", "", ""},
		"OtherClass":        {"kubepods/guaranteed/pod1/x", "", ""},
		"SystemdPrefix":     {"kubepods.slice/kubepods-burstable.slice/kubepods-besteffort-pod1.slice", "", ""},
		"SystemdHyphen":     {"kubepods.slice/kubepods-pod1-2.slice", "", ""},
		"SystemdNoSuffix":   {"kubepods.slice/kubepods-pod1", "", ""},
		"MixedDrivers":      {"kubepods.slice/pod1", "", ""},
		"OtherSlice":        {"mykubepods.slice/mykubepods-pod1.slice", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kubepods, pod, ok := podOf(tc.path)
			if kubepods != tc.kubepods || pod != tc.pod || ok != (tc.pod != "") {
				t.Errorf("podOf(%q) = %q, %q, %t, want %q, %q", tc.path, kubepods, pod, ok, tc.kubepods, tc.pod)
			}
		})
	}
}

// TestIsStatic has the UIDs that the kubelet and the API server give.
func TestIsStatic(t *testing.T) {
	for name, want := range map[string]bool{
		"pod2b1d4c0ffee0a2b3c4d5e6f708192a3b":                                  true,
		"kubepods-burstable-pod2b1d4c0ffee0a2b3c4d5e6f708192a3b.slice":         true,
		"pod0d0c6a1e-4a62-4d0b-93d5-6f4a1b6f0a11":                              false,
		"kubepods-burstable-pod0d0c6a1e_4a62_4d0b_93d5_6f4a1b6f0a11.slice":     false,
		"kubelet-kubepods-besteffort-pod0d0c6a1e_4a62_4d0b_93d5_6f4a1b6.slice": false,
		"pod1": false,
	} {
		if got := isStatic(name); got != want {
			t.Errorf("isStatic(%q) = %t, want %t", name, got, want)
		}
	}
}
