// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
)

// maxQuote bounds how much of a pattern a warning repeats. API servers cut a warning after 256 bytes.
const maxQuote = 40

// commonPrograms has programs that run on every Node, with their command lines as of kubeadm and systemd. A pattern
// that matches one of them ejects the machine each time it joins.
var commonPrograms = []struct{ program, commandLine string }{
	{"systemd", "/usr/lib/systemd/systemd --system --deserialize"},
	{"init", "/sbin/init"},
	{"kubelet", "/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml"},
	{"containerd", "/usr/bin/containerd"},
	{"containerd-shim-runc-v2", "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id -address /run/containerd/containerd.sock"},
	{"runc", "runc --root /run/containerd/runc/k8s.io --log-format json"},
	{"crio", "/usr/bin/crio"},
	{"conmon", "/usr/bin/conmon"},
	{"k0s", "/usr/local/bin/k0s worker --token-file"},
	{"k3s", "/usr/local/bin/k3s agent"},
	{"reclaim-agent", "/reclaim-agent --node-name"},
	{"sshd", "/usr/sbin/sshd -D"},
	{"bash", "/bin/bash"},
}

// Warnings returns warnings about valid values that are rarely intended, in the order of the fields.
func Warnings(m *v1alpha1.ScheduledMachine) []string {
	path := field.NewPath("spec")
	var warnings []string
	if s := machineschedule.Resolve(m, time.Time{}); s.Err == nil && s.Schedule.String() == "never" { // at any instant
		warnings = append(warnings, path.Child("schedule").String()+
			": without both daysOfWeek and hoursOfDay the machine never joins; mon-sun and 0-23 mean always")
	}
	for i, pattern := range m.Spec.KillIfCommands {
		if why := matchesTooMuch(pattern); why != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %q %s: the machine would go back to its owner whenever it joins; name one of the owner's programs, such as idea",
				path.Child("killIfCommands").Index(i), clip.To(pattern, maxQuote), why))
		}
	}
	if m.Spec.ReclaimHold.Enabled() && !m.Spec.HoldsPods() {
		warnings = append(warnings, path.Child("reclaimHold").String()+
			": has no effect without killIfCommands: without programs to watch for, the machine has no agent that could hold its pods")
	}
	return warnings
}

// matchesTooMuch returns why a pattern matches programs of every machine, and none that is specific to the owner; empty
// if it does not. A pattern is the name of a program, or a part of its command line.
func matchesTooMuch(pattern string) string {
	if len([]rune(pattern)) == 1 {
		return "is one character, which almost every command line contains"
	}
	if !strings.ContainsFunc(pattern, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return "has no letter or digit, and matches many command lines"
	}
	for _, e := range commonPrograms {
		if pattern == e.program || strings.Contains(e.commandLine, pattern) {
			return "matches " + e.program + ", which runs on the machines of many clusters"
		}
	}
	return ""
}
