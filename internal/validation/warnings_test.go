// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

func TestPatternsThatMatchTooMuch(t *testing.T) {
	for pattern, says := range map[string]string{
		"a": "one character", "/": "one character", "-": "one character", " ": "one character", "\n": "one character", "é": "one character",
		"  ": "no letter or digit", "\t\n": "no letter or digit", "--": "no letter or digit", "./": "no letter or digit",
		"kubelet": "matches kubelet", "kube": "matches kubelet", "/usr/bin/kubelet": "matches kubelet", "systemd": "matches systemd", "--system": "matches systemd",
		"init": "matches init", "containerd": "matches ", "containerd-shim-runc-v2": "matches containerd-shim-runc-v2", "runc": "matches ", "crio": "matches crio",
		"reclaim-agent": "matches reclaim-agent", "sh": "matches ", "ssh": "matches sshd", "bash": "matches bash", "/usr": "matches ", "bin": "matches ",
		"k0s": "matches k0s", "k3s": "matches k3s",
	} {
		m := good(func(m *v1alpha1.ScheduledMachine) { m.Spec.KillIfCommands = []string{"idea", pattern} })
		got := validation.Warnings(m)
		if len(got) != 1 || !strings.HasPrefix(got[0], "spec.killIfCommands[1]: ") || !strings.Contains(got[0], says) || !strings.Contains(got[0], "name one of the owner's programs") {
			t.Errorf("%q: got %q, want one warning that says %q", pattern, got, says)
		}
	}
}

// TestPatternsOfOwners covers programs of people. One name is longer than the 15 bytes that a kernel stores: the
// command line contains it.
func TestPatternsOfOwners(t *testing.T) {
	m := good(func(m *v1alpha1.ScheduledMachine) {
		m.Spec.KillIfCommands = []string{
			"idea", "java", "matlab", "MATLAB", "steam", "blender", "code", "python3", "chrome", "firefox", "ansys", "R2024b", "gnome-session-binary",
			"idea.sh", "-Xmx2g", "/opt/idea/bin", "программа", "7z", "vi", "give-back-now", "org.eclipse.equinox.launcher", "Xorg",
		}
	})
	if got := validation.Warnings(m); len(got) > 0 {
		t.Errorf("got %q, want no warning", got)
	}
}

// TestWarningsAreShort checks that warnings fit into the limit of API servers.
func TestWarningsAreShort(t *testing.T) {
	m := good(func(m *v1alpha1.ScheduledMachine) {
		m.Spec.KillIfCommands = []string{strings.Repeat("-", 256), "-namespace k8s.io -id -address /run/cont"}
	})
	got := validation.Warnings(m)
	if len(got) != 2 || max(len(got[0]), len(got[1])) > 256 {
		t.Errorf("got %q, want two of at most 256 bytes", got)
	}
}

func TestAHoldWithoutAnAgent(t *testing.T) {
	for hold, want := range map[reclaim.Hold]int{"": 0, reclaim.HoldNone: 0, reclaim.HoldFreeze: 1, reclaim.HoldFreezeOnly: 1, reclaim.HoldKill: 1} {
		m := good(func(m *v1alpha1.ScheduledMachine) { m.Spec.ReclaimHold, m.Spec.KillIfCommands = hold, nil })
		if got := validation.Warnings(m); len(got) != want || want == 1 && !strings.HasPrefix(got[0], "spec.reclaimHold: has no effect without killIfCommands") {
			t.Errorf("%q: got %q, want %d warnings", hold, got, want)
		}
		if m.Spec.KillIfCommands = []string{"idea"}; len(validation.Warnings(m)) > 0 {
			t.Errorf("%q with a program: got %q, want none", hold, validation.Warnings(m))
		}
	}
}

func TestAScheduleThatIsNeverActive(t *testing.T) {
	got := validation.Warnings(good(func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = nil }))
	if len(got) != 1 || !strings.HasPrefix(got[0], "spec.schedule: ") {
		t.Errorf("got %q, want one warning", got)
	}
}
