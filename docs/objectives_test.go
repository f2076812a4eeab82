// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// rules is of a PrometheusRule what is looked at.
type rules struct {
	Spec struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(fivespot_[a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	series    = regexp.MustCompile(`(fivespot_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"([^"]*)"`)
	grouping  = regexp.MustCompile(`by \(([^)]*)\)`)
)

// declared returns the labels of every metric, those of histograms by their series.
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
	for _, s := range series.FindAllStringSubmatch(expr, -1) {
		labels, ok := metrics[s[1]]
		if !ok {
			t.Errorf("%s: there is no %s", expr, s[1])
		}
		known = append(known, labels...)
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s", expr, s[1], m[1])
			}
			if m[1] == "phase" && !slices.Contains(v1alpha1.Phases, v1alpha1.Phase(m[2])) {
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
	if strings.Count(expr, "(") != strings.Count(expr, ")") || len(known) == 0 {
		t.Errorf("%s: not a query of ours", expr)
	}
}

func TestAlertsAndObjectivesAskForWhatIsMeasured(t *testing.T) {
	t.Parallel()
	metrics, page := declared(t), read(t, "docs/objectives.md")
	var r rules
	if err := yaml.Unmarshal([]byte(read(t, "config/prometheus/rule.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, g := range r.Spec.Groups {
		for _, rule := range g.Rules {
			alerts++
			query(t, metrics, rule.Expr)
			if rule.Alert == "" || rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" || !strings.Contains(page, "`"+rule.Alert+"`") {
				t.Errorf("%s: no name, summary, severity or line in docs/objectives.md", rule.Alert)
			}
		}
	}
	if alerts == 0 {
		t.Error("no alerts")
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
