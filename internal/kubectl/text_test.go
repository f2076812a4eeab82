// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestOutputFitsATerminal has a busy Cluster and names of a usual length.
func TestOutputFitsATerminal(t *testing.T) {
	t.Parallel()
	var objects []*v1alpha1.ScheduledMachine
	for i := range 12 {
		objects = append(objects, machine(fmt.Sprintf("ws-berlin-%02d", i), kept(departurecap.BlastRadiusCap, 4*time.Minute)))
	}
	objects = append(objects, machine("overdue", overdue), machine("gated", gated))
	config := fleet(t, metadata(leavingMachine("gated", v1alpha1.ScheduledMachineDeleted, 20*time.Minute)), objects...)
	for _, args := range [][]string{{"status", config}, {"rails", config}, {"audit"}} {
		got := run(auditLog(), args...)
		if got.Code != 0 || got.Out == "" {
			t.Fatalf("%v: %+v", args, got)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(got.Out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns:\n%s", args[0], n, line)
			}
			if args[0] == "rails" && strings.TrimSpace(line) != "" && seen[line] {
				t.Errorf("twice:\n%s", line)
			}
			seen[line] = true
		}
	}
	rails := run("", "rails", config).Out
	if want := "  ws-berlin-00, ws-berlin-01 and 10 more: At most 5% of the machines (at least\n"; !strings.Contains(rails, want) || strings.Count(rails, "At most 5%") != 1 {
		t.Errorf("want once %q in\n%s", want, rails)
	}
	if wide := run("", "rails", "-o", "wide", config).Out; !strings.Contains(wide, "LANE          MACHINE         ACTION\n") {
		t.Errorf("wide:\n%s", wide)
	}
}

// TestCompletion calls completion as the shell does.
func TestCompletion(t *testing.T) {
	t.Parallel()
	namespaces := metadata(metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "farm"}})
	list := v1alpha1.ScheduledMachineList{Items: []v1alpha1.ScheduledMachine{*machine("office"), *machine("spare", inLab)}}
	list.APIVersion, list.Kind = v1alpha1.GroupVersion.String(), "ScheduledMachineList"
	config := cluster(t, map[string]any{strings.TrimSuffix(path(""), "/"): list, "/api/v1/namespaces": namespaces})
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Names":      {[]string{"why", ""}, "office\nspare\n:4\n"},
		"Others":     {[]string{"status", "office", ""}, "spare\n:4\n"},
		"GiveBack":   {[]string{"give-back", ""}, "office\nspare\n:4\n"},
		"Clusters":   {[]string{"rails", "--cluster", ""}, "lab\nprod\n:4\n"},
		"Namespaces": {[]string{"why", "-n", ""}, "farm\n:4\n"},
		"Contexts":   {[]string{"why", "--context", ""}, "test\n:4\n"},
		"Formats":    {[]string{"status", "-o", ""}, "text\nwide\njson\n:4\n"},
	} {
		got := run("", append([]string{"__complete", config}, tc.args...)...)
		if diff := cmp.Diff(tc.want, got.Out); diff != "" {
			t.Errorf("%s: -want, +got:\n%s%s", name, diff, got.Err)
		}
	}
	if got := run("", "__complete", cluster(t, nil), "why", ""); got.Out != ":4\n" {
		t.Errorf("a person who may not list gets no completion: %+v", got)
	}
}

// TestFindsANameInAnotherNamespace has a kubeconfig for another namespace, as before an owner's first command.
func TestFindsANameInAnotherNamespace(t *testing.T) {
	t.Parallel()
	other := machine("office", func(m *v1alpha1.ScheduledMachine) { m.Namespace = "desks" })
	list := func(items ...v1alpha1.ScheduledMachine) map[string]any {
		l := v1alpha1.ScheduledMachineList{Items: items}
		l.APIVersion, l.Kind = v1alpha1.GroupVersion.String(), "ScheduledMachineList"
		return map[string]any{"/apis/5spot.finos.org/v1alpha1/scheduledmachines": l}
	}
	one := cluster(t, list(*other))
	if got := run("", "why", "office", one); got.Code != 0 || !strings.HasPrefix(got.Out, "Machine:   office in desks\n") {
		t.Errorf("the only one of the name is meant: %+v", got)
	}
	const absent = "not found in namespace farm: for another, add -n NAMESPACE\n"
	if got := run("", "why", "office", cluster(t, list(*other, *machine("office")))); got.Code != 1 || !strings.HasSuffix(got.Err, absent) {
		t.Errorf("of two none is meant: %+v", got)
	}
	refused := map[string]any{path("office"): refusal(http.StatusForbidden, metav1.StatusReasonForbidden, `may not get it in the namespace "farm"`)}
	const forbidden = "error: reading office: may not get it in the namespace \"farm\": for another namespace, add -n NAMESPACE\n"
	if got := run("", "why", "office", cluster(t, refused)); got.Code != 1 || got.Err != forbidden {
		t.Errorf("the namespace is named once: %+v", got)
	}
	if got := run("", "why", "office", "-n", "farm", one); got.Code != 1 || strings.Contains(got.Err, "add -n") {
		t.Errorf("a namespace that the command line names is meant: %+v", got)
	}
	server := &api{objects: list(*other)}
	want := result{Err: "error: office is in namespace desks, which the command line does not name: add -n desks\n", Code: 2}
	if diff := cmp.Diff(want, run("", "give-back", "office", server.serve(t))); diff != "" || len(server.patches) != 0 {
		t.Errorf("a command that writes guesses nothing: -want, +got:\n%s", diff)
	}
}
