// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"strings"
	"testing"
)

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// session is the cgroup of a user's systemd instance. The user controls what is below.
const session = "0::/user.slice/user-1000.slice/user@1000.service"

func TestContained(t *testing.T) {
	cases := map[string]struct {
		reason       string
		cgroup, init string
		want         bool
	}{
		"Session":           {"A login is the owner.", "0::/user.slice/user-1000.slice/session-2.scope\n", "0::/init.scope\n", false},
		"DesktopApp":        {"Desktops put each application in a scope.", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-jetbrains-idea-4711.scope\n", "", false},
		"AppNamedDocker":    {"A name alone makes no container.", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-docker-desktop-12.scope\n", "", false},
		"Flatpak":           {"Sandboxed applications are the owner's.", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-flatpak-com.jetbrains.IDEA-99.scope\n", "", false},
		"SystemdRun":        {"Its ids are half as long as a container's.", "0::/system.slice/run-r0123456789abcdef0123456789abcdef.scope\n", "", false},
		"DockerDaemon":      {"What runs in its service helps it.", "0::/system.slice/docker.service\n", "0::/init.scope\n", true},
		"VirtualMachine":    {"A virtual machine is neither pod nor container.", "0::/machine.slice/machine-qemu\\x2d1\\x2dwin.scope/libvirt\n", "", false},
		"Root":              {"Without systemd all is in the root.", "0::/\n", "0::/\n", false},
		"NoCgroups":         {"A kernel without cgroups has no containers.", "", "", false},
		"PodSystemdV2":      {"kubelet with systemd.", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_c.slice/cri-containerd-" + hex64 + ".scope\n", "", true},
		"PodGuaranteed":     {"Guaranteed pods sit directly below.", "0::/kubepods.slice/kubepods-pod1.slice/crio-" + hex64 + ".scope\n", "", true},
		"PodCgroupfsV1":     {"kubelet with cgroupfs, version 1.", "5:memory:/kubepods/burstable/pod1/" + hex64 + "\n", "", true},
		"PodOneHierarchy":   {"One hierarchy is enough.", "9:name=systemd:/\n4:memory:/kubepods/pod1\n0::/\n", "", true},
		"PodMisnamed":       {"containerd and kubelet disagree about the driver.", "0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + hex64 + "\n", "", true},
		"PodOfKind":         {"kind renames the root slice.", "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice\n", "", true},
		"PodFromInside":     {"A private cgroup namespace shows relative paths.", "0::/../../kubepods-besteffort-pod2.slice/cri-containerd-" + hex64 + ".scope\n", "", true},
		"SiblingPod":        {"Relative and with cgroupfs, only the id is left.", "0::/../../pod2/" + hex64 + "\n", "", true},
		"DockerSystemd":     {"A container is excluded, whichever program runs it.", "0::/system.slice/docker-" + hex64 + ".scope\n", "", true},
		"DockerCgroupfs":    {"The same without systemd.", "4:memory:/docker/" + hex64 + "\n", "", true},
		"ShortID":           {"Runtimes may shorten ids.", "0::/system.slice/docker-0123456789ab.scope\n", "", true},
		"RootlessPodman":    {"Below a session any user chooses names: the owner's containers are the owner's.", session + "/user.slice/libpod-" + hex64 + ".scope/container\n", "", false},
		"RootfulPodman":     {"The administrator's containers are the machine's.", "0::/machine.slice/libpod-" + hex64 + ".scope/container\n", "", true},
		"ScopeLikeAPods":    {"A name in a session proves nothing.", session + "/app.slice/app-my-kubepods-1.scope\n", "", false},
		"ScopeOfAViewer":    {"Nor does it elsewhere, if it is no name that kubelets give.", "0::/system.slice/kubepods-viewer.scope\n", "", false},
		"SliceInASession":   {"Users may make slices.", session + "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + hex64 + ".scope\n", "", false},
		"DockerInASession":  {"Users may make any directory.", session + "/docker/x\n", "", false},
		"IDInASession":      {"And give it any name.", session + "/app.slice/" + hex64 + "\n", "", false},
		"BelowAService":     {"A service may run as an ordinary user who has its cgroup.", "0::/system.slice/build.service/kubepods/pod1/" + hex64 + "\n", "", false},
		"BelowAScope":       {"So may a scope.", "0::/system.slice/run-7.scope/docker/x\n", "", false},
		"SessionV1":         {"Without systemd sessions are elsewhere.", "5:memory:/user/jane/0/docker/x\n", "", false},
		"SessionFromInside": {"A private cgroup namespace shows relative paths.", "0::/../../../../user.slice/user-1000.slice/session-2.scope/kubepods/x\n", "0::/../../../../init.scope\n", false},
		"Kubelet":           {"It runs mount with names that pods choose.", "0::/system.slice/kubelet.service\n", "0::/init.scope\n", true},
		"KubeletOfKind":     {"Wherever it is among the slices.", "0::/kubelet.slice/kubelet.service\n", "0::/init.scope\n", true},
		"KubeletFromInside": {"A private cgroup namespace shows relative paths.", "0::/../../../../system.slice/kubelet.service\n", "0::/../../../../init.scope\n", true},
		"KubeletOfASession": {"Users may make services of any name.", session + "/app.slice/kubelet.service\n", "", false},
		"K3s":               {"Kubelet and runtime in one.", "0::/system.slice/k3s-agent.service\n", "", true},
		"PodOfK3s":          {"It uses the kubelet's directories.", "0::/kubepods/besteffort/pod1/" + hex64 + "\n", "", true},
		"K0s":               {"Both run below its service.", "0::/system.slice/k0sworker.service\n", "", true},
		"MicroK8s":          {"Kubelet and runtime of a snap.", "0::/system.slice/snap.microk8s.daemon-kubelite.service\n", "", true},
		"NodeInK3d":         {"Its entry point makes room beside itself.", "0::/docker/" + hex64 + "/init\n", "0::/docker/" + hex64 + "/init\n", false},
		"PodInK3d":          {"Its pods are pods.", "0::/docker/" + hex64 + "/kubepods/pod1/" + hex64 + "\n", "0::/docker/" + hex64 + "/init\n", true},
		"DockerInAPod":      {"A container in a pod's container is the pod's.", "0::/kubepods/pod1/" + hex64 + "/docker/" + hex64 + "\n", "", true},
		"ConmonOfAPod":      {"It has the name of a container among its arguments.", "0::/system.slice/crio-conmon-" + hex64 + ".scope\n", "", true},
		"OtherCgroupRoot":   {"A kubelet may have any cgroup root.", "4:memory:/lent/kubepods/burstable/pod1/" + hex64 + "\n", "", true},
		"NamedLikeTheNode":  {"What begins like the node's path need not be below it.", "0::/nodes/kubepods/pod1\n", "0::/node\n", true},
		"PathOfTheNode":     {"Nor is a pod's, if the node's path is how its own begins.", "0::/kubepods/pod1\n", "0::/kube\n", true},
		"LXC":               {"System containers are containers.", "0::/lxc.payload.box/init.scope\n", "", true},
		"Nspawn":            {"So are systemd's.", "0::/machine.slice/systemd-nspawn@box.service/payload\n", "", true},
		"NodeInContainer":   {"In kind the node is a container; its own sessions are the owner's.", "4:memory:/docker/" + hex64 + "/user.slice\n", "4:memory:/docker/" + hex64 + "/init.scope\n", false},
		"PodInNodeInDocker": {"Its pods are still pods.", "4:memory:/docker/" + hex64 + "/kubepods/pod1\n", "4:memory:/docker/" + hex64 + "\n", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := contained([]byte(tc.cgroup), []byte(tc.init)); got != tc.want {
				t.Errorf("%s\ncontained(%q) = %v, want %v", tc.reason, tc.cgroup, got, tc.want)
			}
		})
	}
}

func TestWithoutKubelets(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"a\x00b\x00":                      "a\x00b\x00",
		"a\x00/var/lib/kubelet/x\x00":     "a\x00\x00",
		"a\x00-d=/var/lib/kubelet/x\x00b": "a\x00\x00b",
		"/var/lib/kubelet\x00":            "/var/lib/kubelet\x00",
	} {
		if got := string(WithoutKubelets([]byte(in))); got != want {
			t.Errorf("WithoutKubelets(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("5 (a) b) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n"))
	f.Add([]byte("5 (java"))
	f.Add([]byte("5 (java) "))
	f.Add([]byte("5 (java) S 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 x 0 -1"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := parseStat(raw); err != nil && !errors.Is(err, errMalformed) {
			t.Errorf("parseStat(%q): error %v is not errMalformed", raw, err)
		}
	})
}

func FuzzContained(f *testing.F) {
	f.Add([]byte("0::/kubepods.slice\n"), []byte("0::/init.scope\n"))
	f.Add([]byte("4:memory:/docker/ab"), []byte("4"))
	f.Fuzz(func(t *testing.T, cgroup, initCgroup []byte) {
		if contained(cgroup, nil) && !strings.Contains(string(cgroup), "/") && !strings.Contains(string(cgroup), ":") {
			t.Errorf("contained(%q) without a path", cgroup)
		}
		contained(cgroup, initCgroup)
	})
}
