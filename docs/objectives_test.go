// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

// rules is of a PrometheusRule what is looked at.
type rules struct {
	Spec struct{ Groups []group }
}

type group struct {
	Name  string
	Rules []alert
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(fivespot_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	series    = regexp.MustCompile(`(fivespot_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"([^"]*)"`)
	grouping  = regexp.MustCompile(`by \(([^)]*)\)`)
)

// attachmentPhases are the phases of a Node with a LoadBalancer.
var attachmentPhases = []expv1.AttachmentPhase{
	expv1.PhasePending, expv1.PhaseHeld, expv1.PhaseDraining, expv1.PhaseDetached, expv1.PhaseUnknown, expv1.PhaseAttaching,
}

// declared returns the labels of every metric; histograms have one entry per series.
func declared(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, m := range metricRow.FindAllStringSubmatch(read(t, "docs/reference/metrics.md"), -1) {
		var labels []string
		for _, l := range span.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		all[m[1]] = labels
		if m[2] == "histogram" {
			delete(all, m[1])
			all[m[1]+"_bucket"], all[m[1]+"_sum"], all[m[1]+"_count"] = append(labels, "le"), labels, labels
		}
	}
	if len(all) == 0 {
		t.Fatal("no metrics")
	}
	return all
}

// query checks that metrics and labels of a query exist.
func query(t *testing.T, metrics map[string][]string, expr string) {
	t.Helper()
	var known []string
	asked := series.FindAllStringSubmatch(expr, -1)
	for _, s := range asked {
		labels, ok := metrics[s[1]]
		if !ok {
			t.Errorf("%s: there is no %s", expr, s[1])
		}
		known = append(known, labels...)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s", expr, s[1], m[1])
			}
			if m[1] == "phase" && !slices.Contains(v1alpha1.Phases, v1alpha1.Phase(m[2])) && !slices.Contains(attachmentPhases, expv1.AttachmentPhase(m[2])) {
				t.Errorf("%s: there is no phase %s", expr, m[2])
			}
		}
	}
	for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			if !slices.Contains(known, label) {
				t.Errorf("%s: nothing has the label %s", expr, label)
			}
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || len(asked) == 0 {
		t.Errorf("%s: not a query of ours", expr)
	}
}

func TestAlertsAndObjectivesAskForWhatIsMeasured(t *testing.T) {
	t.Parallel()
	metrics, page := declared(t), read(t, "docs/objectives.md")
	var r rules
	if err := yaml.Unmarshal([]byte(read(t, "config/monitoring/rule.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range r.Spec.Groups {
		for _, rule := range g.Rules {
			alerts++
			query(t, metrics, rule.Expr)
			_, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "/blob/main/docs/objectives.md#")
			if rule.Alert == "" || rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" || anchor != strings.ToLower(rule.Alert) {
				t.Errorf("%s: no name, summary, severity or link to its heading in docs/objectives.md", rule.Alert)
			}
			if !slices.Contains(anchors(page), anchor) {
				t.Errorf("docs/objectives.md does not say what to do about %s", rule.Alert)
			}
		}
	}
	if alerts == 0 {
		t.Error("no alerts")
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Fivespot\w+)$`).FindAllStringSubmatch(page, -1) {
		if !slices.ContainsFunc(r.Spec.Groups, func(g group) bool {
			return slices.ContainsFunc(g.Rules, func(a alert) bool { return a.Alert == heading[1] })
		}) {
			t.Errorf("docs/objectives.md explains %s, which no rule raises", heading[1])
		}
	}
	queries := 0
	for _, s := range span.FindAllStringSubmatch(page, -1) {
		if strings.ContainsAny(s[1], "({") && strings.Contains(s[1], "fivespot_") {
			queries++
			query(t, metrics, s[1])
		}
	}
	if queries == 0 {
		t.Error("no queries")
	}
}

// TestTheDashboardAsksForWhatIsMeasured looks at names; test/monitoring evaluates the queries.
func TestTheDashboardAsksForWhatIsMeasured(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, "config/monitoring/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics, queries := declared(t), 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries++
			query(t, metrics, target.Expr)
		}
	}
	if queries == 0 {
		t.Error("no queries")
	}
}

// TestTheQuietFleetIsLikeOurs holds the samples of test/monitoring to the metrics that there are.
func TestTheQuietFleetIsLikeOurs(t *testing.T) {
	t.Parallel()
	metrics, samples := declared(t), 0
	for line := range strings.Lines(read(t, "test/monitoring/testdata/healthy.prom")) {
		if !strings.HasPrefix(line, "#") {
			samples++
			query(t, metrics, line)
		}
	}
	if samples == 0 {
		t.Error("no samples")
	}
}
