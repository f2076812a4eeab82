// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

const metricsIntro = "The manager serves its metrics, and the ones of controller-runtime and Cluster API's cluster\n" +
	"cache, at `--diagnostics-address`; the agent serves its own at `--metrics-address`, and the\n" +
	"eviction guard its own and controller-runtime's at `--metrics-addr`."

// A metric is one declared metric family.
type metric struct {
	name, kind, help string
	labels           []string
}

func (m metric) row() []string {
	labels := make([]string, len(m.labels))
	for i, l := range m.labels {
		labels[i] = code(l)
	}
	return []string{code(m.name), m.kind, strings.Join(labels, ", "), m.help}
}

func metricsPage(root string) (string, error) {
	manager, err := declaredBelow(root, "controllers", "exp", "internal")
	if err != nil {
		return "", err
	}
	agent, err := agentMetrics()
	if err != nil {
		return "", err
	}
	guard, err := declaredBelow(root, "exp/eviction")
	if err != nil {
		return "", err
	}
	var d document
	d.title("Metrics", metricsIntro)
	for _, s := range []struct {
		title   string
		metrics []metric
	}{{"manager", manager}, {"reclaim-agent", agent}, {"eviction-guard", guard}} {
		d.section(s.title, "")
		var rows [][]string
		for _, m := range s.metrics {
			if m.name == "" || m.help == "" || m.kind == "" {
				return "", fmt.Errorf("%s: metric %q of type %q has no name, type or help", s.title, m.name, m.kind)
			}
			rows = append(rows, m.row())
		}
		d.table([]string{"Metric", "Type", "Labels", "Meaning"}, rows)
	}
	return d.String(), nil
}

// declaredBelow reads the declarations in every metrics.go in the subdirectories of dirs. Registered collectors of the
// manager cannot be read instead: they need an API server.
func declaredBelow(root string, dirs ...string) ([]metric, error) {
	var found []metric
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*", "metrics.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return nil, err
			}
			found = append(found, declaredIn(file)...)
		}
	}
	slices.SortFunc(found, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

func declaredIn(file *ast.File) []metric {
	var found []metric
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if m, ok := declared(call); ok {
				found = append(found, m)
			}
		}
		return true
	})
	return found
}

// declared reads prometheus.NewCounterVec(prometheus.CounterOpts{…}, labels) and
// its like, and prometheus.NewDesc(name, help, labels, …).
func declared(call *ast.CallExpr) (metric, bool) {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return metric{}, false
	}
	if pkg, ok := fun.X.(*ast.Ident); !ok || pkg.Name != "prometheus" {
		return metric{}, false
	}
	if fun.Sel.Name == "NewDesc" && len(call.Args) >= 3 {
		// A descriptor has no type. The metrics of our descriptors are gauges, counted on each scrape.
		return metric{text(call.Args[0]), "gauge", text(call.Args[1]), texts(call.Args[2])}, true
	}
	kind := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(fun.Sel.Name, "New"), "Vec"))
	opts, ok := call.Args[0].(*ast.CompositeLit)
	if !ok || !slices.Contains([]string{"counter", "gauge", "histogram", "summary"}, kind) {
		return metric{}, false
	}
	m := metric{kind: kind}
	for _, e := range opts.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			switch fmt.Sprint(kv.Key) {
			case "Name":
				m.name = text(kv.Value)
			case "Help":
				m.help = text(kv.Value)
			}
		}
	}
	if len(call.Args) > 1 {
		m.labels = texts(call.Args[1])
	}
	return m, true
}

func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, _ := strconv.Unquote(lit.Value)
	return s
}

func texts(e ast.Expr) []string {
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var all []string
	for _, elt := range list.Elts {
		all = append(all, text(elt))
	}
	return all
}

// agentMetrics gathers the metrics that the agent serves.
func agentMetrics() ([]metric, error) {
	var b strings.Builder
	if err := new(metrics.Set).Write(&b); err != nil {
		return nil, err
	}
	found := map[string]metric{}
	for line := range strings.Lines(b.String()) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			m := found[words[2]]
			m.name, m.help = words[2], strings.Join(words[3:], " ")
			found[m.name] = m
		case strings.HasPrefix(line, "# TYPE "):
			m := found[words[2]]
			m.kind = words[3]
			found[words[2]] = m
		case strings.Contains(line, "{"):
			name, labels, _ := strings.Cut(words[0], "{")
			label, _, _ := strings.Cut(labels, "=")
			m := found[name]
			m.labels = []string{label}
			found[name] = m
		}
	}
	names := slices.Sorted(maps.Keys(found))
	all := make([]metric, len(names))
	for i, name := range names {
		all[i] = found[name]
	}
	return all, nil
}
