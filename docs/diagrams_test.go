// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// statements are the lines that a diagram of a kind may have, as in Mermaid's documentation.
// Diagrams keep to this part of its language, so that one that a forge cannot draw fails here.
var statements = map[string]*regexp.Regexp{
	"stateDiagram-v2": regexp.MustCompile(`^(\[\*\]|\w+) --> (\[\*\]|\w+)(: [^:;#]+)?$`),
	"sequenceDiagram": regexp.MustCompile(`^(participant \w+ as [^:;#]+|\w+(->>|-->>)\w+: [^;#]+)$`),
	"flowchart LR":    regexp.MustCompile(`^\w+(\["[^"]+"\])?( -->(\|[^|]+\|)? \w+(\["[^"]+"\])?)*$`),
}

func TestDiagramsCanBeDrawn(t *testing.T) {
	drawn := 0
	for path, page := range pages(t) {
		for _, text := range blocks(page, "mermaid") {
			drawn++
			lines := strings.Split(strings.TrimSpace(text), "\n")
			statement := statements[lines[0]]
			if statement == nil || len(lines) < 2 {
				t.Errorf("%s: a diagram that begins with %q", path, lines[0])
				continue
			}
			for _, line := range lines[1:] {
				if !statement.MatchString(strings.TrimSpace(line)) {
					t.Errorf("%s: %q is no statement of a %s", path, line, lines[0])
				}
			}
			wantActors(t, path, lines)
		}
	}
	if drawn == 0 {
		t.Error("there is no diagram")
	}
}

// wantActors checks that a sequence diagram that declares participants declares all: a name
// that is not declared is drawn as one more.
func wantActors(t *testing.T, path string, lines []string) {
	t.Helper()
	var declared []string
	for _, line := range lines[1:] {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "participant "); ok {
			declared = append(declared, strings.Fields(name)[0])
		}
	}
	if lines[0] != "sequenceDiagram" || len(declared) == 0 {
		return
	}
	for _, line := range lines[1+len(declared):] {
		for _, actor := range regexp.MustCompile(`^(\w+)-{1,2}>>(\w+)`).FindStringSubmatch(strings.TrimSpace(line))[1:] {
			if !slices.Contains(declared, actor) {
				t.Errorf("%s: %s is no participant", path, actor)
			}
		}
	}
}

// TestPhasesAreDrawn keeps the guide's diagram to the phases that there are.
func TestPhasesAreDrawn(t *testing.T) {
	want := []string{
		string(v1alpha1.PhasePending), string(v1alpha1.PhaseActive), string(v1alpha1.PhaseShuttingDown), string(v1alpha1.PhaseInactive),
		string(v1alpha1.PhaseDisabled), string(v1alpha1.PhaseTerminated), string(v1alpha1.PhaseEmergencyRemove), string(v1alpha1.PhaseError),
	}
	var drawn []string
	for _, text := range blocks(read(t, "docs/guide.md"), "mermaid") {
		if strings.HasPrefix(text, "stateDiagram") {
			for _, m := range regexp.MustCompile(`(?m)^\s+\S+ --> (\w+)`).FindAllStringSubmatch(text, -1) {
				drawn = append(drawn, m[1])
			}
		}
	}
	slices.Sort(want)
	slices.Sort(drawn)
	if drawn = slices.Compact(drawn); !slices.Equal(drawn, want) {
		t.Errorf("drawn are %v, want %v", drawn, want)
	}
}
