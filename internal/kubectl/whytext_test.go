// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestWhyIsShort has a provider that reports the whole output of a command.
func TestWhyIsShort(t *testing.T) {
	t.Parallel()
	var output strings.Builder
	for i := range 50 {
		fmt.Fprintf(&output, "TASK [%d] failed %s\n", i, strings.Repeat("x", 1000))
	}
	m := machine("office", func(m *v1alpha1.ScheduledMachine) {
		m.Status.Phase = v1alpha1.PhaseError
		m.Status.Conditions = []metav1.Condition{
			condition("Ready", metav1.ConditionFalse, "ReconcileFailed", output.String()),
			condition("HostClaimed", metav1.ConditionTrue, v1alpha1.ClaimedFirstReason, "note "+output.String()),
		}
	})
	got := run("", "why", "office", cluster(t, map[string]any{path("office"): m})).Out
	if n := strings.Count(got, "\n"); n > 20 || len(got) > 4000 {
		t.Errorf("%d lines, %d bytes:\n%s", n, len(got), got)
	}
	for _, want := range []string{"TASK [2]", "... and 47 more lines: kubectl 5spot -n farm status office\n", "\nDo: "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
}

// TestWhyShowsRequests reads the Events about requests, including earlier ones after resume.
func TestWhyShowsRequests(t *testing.T) {
	t.Parallel()
	const events = "/api/v1/namespaces/farm/events"
	happened := func(reason, message string, ago time.Duration) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, EventTime: metav1.NewMicroTime(now.Add(-ago))}
	}
	list := corev1.EventList{Items: []corev1.Event{
		happened(v1alpha1.EmergencyReclaimEvent, "Node worker-7 asked: process-match: java", 9*time.Hour),
		happened("MachineRunning", "Machine is healthy and running", time.Minute),
		happened(v1alpha1.ReclaimRequestRejectedEvent, "Node worker-9 is not its host\nDo: x", 2*time.Minute),
	}}
	got := run("", "why", "office", cluster(t, map[string]any{path("office"): machine("office"), events: list})).Out
	want := "Events:    2m ago: ReclaimRequestRejected: Node worker-9 is not its host\ufffdDo: x\n           9h ago: EmergencyReclaim: Node worker-7 asked: process-match: java\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("want at the end\n%s\nin\n%s", want, got)
	}
	refused := run("", "why", "office", cluster(t, map[string]any{
		path("office"): machine("office"), events: refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "no"),
	}))
	if refused.Code != 0 || strings.Contains(refused.Out, "Events:") {
		t.Errorf("an owner need not be allowed to list Events: %+v", refused)
	}
}

// TestWhyHasAdviceForEveryStep reads the reasons of departure steps from their declarations.
func TestWhyHasAdviceForEveryStep(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "api", "v1alpha1", "names.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	over := map[string]bool{v1alpha1.WaitingForResponseReason: true, v1alpha1.StepsCompletedReason: true, v1alpha1.StepsSkippedReason: true}
	steps := 0
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(group.Doc.Text(), "Reasons of the ReadyForDeletion condition") {
			continue
		}
		for _, spec := range group.Specs {
			reason, err := strconv.Unquote(spec.(*ast.ValueSpec).Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if steps++; v1alpha1.WaitAdvice()[reason] == "" && !over[reason] {
				t.Errorf("why does not say what to do about a machine that leaves and waits with %s", reason)
			}
		}
	}
	if steps == 0 {
		t.Error("no reasons found")
	}
}
