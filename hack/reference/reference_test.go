// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

const root = "../.."

func TestPagesAreUpToDate(t *testing.T) {
	for name, render := range pages {
		t.Run(name, func(t *testing.T) {
			want, err := render(root)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, "docs", "reference", name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("run `make generate`: -should be, +is:\n%s", diff)
			}
		})
	}
}

func TestMetricsFollowPrometheusConventions(t *testing.T) {
	manager, err := declaredBelow(root, "controllers", "exp", "internal")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := agentMetrics()
	if err != nil {
		t.Fatal(err)
	}
	guard, err := declaredBelow(root, "exp/eviction")
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(strings.NewReader(exposition(slices.Concat(manager, agent, guard)))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// exposition renders metrics as a server would, for linting.
func exposition(all []metric) string {
	var b strings.Builder
	for _, m := range all {
		var labels []string
		for _, l := range m.labels {
			labels = append(labels, l+`="x"`)
		}
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
		own := strings.Join(labels, ",")
		if m.kind != "histogram" {
			fmt.Fprintf(&b, "%s{%s} 0\n", m.name, own)
			continue
		}
		bucket := strings.Join(append(labels, `le="+Inf"`), ",")
		fmt.Fprintf(&b, "%s_bucket{%s} 0\n%s_sum{%s} 0\n%s_count{%s} 0\n", m.name, bucket, m.name, own, m.name, own)
	}
	return b.String()
}

// TestNoMetricIsMissed looks for what the reading of declarations cannot see, such
// as a metric outside metrics.go or a name put together at run time.
func TestNoMetricIsMissed(t *testing.T) {
	page, err := metricsPage(root)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`"(fivespot_[a-z_]*)`)
	for _, dir := range []string{"controllers", "exp", "internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range name.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(page, "`"+m[1]+"`") {
					t.Errorf("%s: %s is not documented", path, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReasonsOfDecisionsAreDocumented covers the reasons that the conditions take
// over from package lifecycle.
func TestReasonsOfDecisionsAreDocumented(t *testing.T) {
	page, err := reasonsPage(root)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := constantsOf(filepath.Join(root, "internal/lifecycle/lifecycle.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, g := range groups {
		if !strings.HasPrefix(g.doc, "The reasons of a decision") {
			continue
		}
		found = true
		for _, c := range g.constants {
			if !strings.Contains(page, "`"+c.value+"`") {
				t.Errorf("%s is not documented", c.value)
			}
		}
	}
	if !found {
		t.Error("the reasons of decisions are not where they were")
	}
}

func TestWhatHasNoDescriptionIsAnError(t *testing.T) {
	documented := []group{{doc: "Reasons of x.", constants: []constant{
		{"XCondition", "X", "XCondition is x."},
		{"XReason", "X", "XReason means x."},
		{"XAnnotation", "x", "x."},
		{"FieldManager", "x", "x."},
		{"PhaseX", "X", "x."},
	}}, {constants: []constant{{"XEvent", "X", "x."}}}}
	if _, err := renderReasons(documented, documented, documented, documented); err != nil {
		t.Errorf("everything is documented: %v", err)
	}
	bare := []group{{constants: []constant{{"XCondition", "X", ""}}}}
	if _, err := renderReasons(bare, documented, documented, documented); err == nil {
		t.Error("a condition without a doc comment is no error")
	}
	if _, err := fields("spec", schema{Properties: map[string]schema{"x": {Type: "string"}}}); err == nil {
		t.Error("a field without a description is no error")
	}
}
