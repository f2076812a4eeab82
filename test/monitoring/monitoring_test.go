// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests the alerts and the dashboard of config/monitoring. Prometheus' own engine evaluates all of
// their expressions over samples of a quiet fleet, and over samples with one fault each.
package monitoring

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// faults are the samples of each alert's fault: the ones that differ from a quiet fleet, from the beginning on.
// Counters grow from zero to their value. Counters with a time, in milliseconds, jump to it. Gauges with a time have
// their value for one scrape.
var faults = map[string]string{
	"FivespotReclaimSlow":                   "# TYPE fivespot_reclaim_latency_seconds histogram\nfivespot_reclaim_latency_seconds_bucket{namespace=\"farm\",cluster=\"prod\",stage=\"deleted\",le=\"1\"} 4\nfivespot_reclaim_latency_seconds_bucket{namespace=\"farm\",cluster=\"prod\",stage=\"deleted\",le=\"5\"} 4",
	"FivespotReclaimIncomplete":             `fivespot_machines{phase="EmergencyRemove",namespace="farm",cluster="prod"} 1`,
	"FivespotWorkloadClusterUnreachable":    `fivespot_machine_conditions{condition="WorkloadClusterReachable",status="False",namespace="farm",cluster="prod"} 3`,
	"FivespotMachinesPaused":                `fivespot_machine_conditions{condition="Paused",status="True",namespace="farm",cluster="prod"} 3`,
	"FivespotOwnersNotProtected":            `fivespot_machine_conditions{condition="OwnerProtected",status="Unknown",namespace="farm",cluster="prod"} 1`,
	"FivespotHoldUnavailable":               `fivespot_machine_conditions{condition="OwnerProtected",status="True",reason="HoldUnavailable",namespace="farm",cluster="prod"} 1`,
	"FivespotRapidReReclaims":               `fivespot_rapid_re_reclaims_total 40`,
	"FivespotTransitionsLate":               "# TYPE fivespot_transition_lag_seconds histogram\nfivespot_transition_lag_seconds_bucket{le=\"1\"} 40\nfivespot_transition_lag_seconds_bucket{le=\"10\"} 40",
	"FivespotMachinesInError":               `fivespot_machines{phase="Error",namespace="farm",cluster="prod"} 1`,
	"FivespotMachinesNotReady":              `fivespot_machine_conditions{condition="Ready",status="False",namespace="farm",cluster="prod"} 1`,
	"FivespotActuationPaused":               `fivespot_actuation_paused 1`,
	"FivespotReclaimSuppressed":             "fivespot_actuation_paused 1 3600000\nfivespot_actions_suppressed_total{kind=\"EmergencyRemove\"} 1 3600000",
	"FivespotDeparturesDeferred":            `fivespot_departure_oldest_deferred_seconds{namespace="farm",cluster="prod"} 1200`,
	"FivespotDeparturesLate":                `fivespot_departures_late{namespace="farm",cluster="prod"} 1`,
	"FivespotDeparturesCapped":              `fivespot_departures_capped_total{namespace="farm",cluster="prod",lane="unscheduled"} 40 3600000`,
	"FivespotWipeQuarantined":               `fivespot_wipe_quarantined{namespace="farm",cluster="prod"} 1 3600000`,
	"FivespotClockSkew":                     `fivespot_clock_skew_seconds -45`,
	"FivespotRecordsRejected":               `fivespot_records_rejected_total{reason="node_ref"} 40 3600000`,
	"FivespotOrphanMachines":                `fivespot_orphan_machines{namespace="farm",cluster="prod"} 3`,
	"FivespotAuditWriteErrors":              `fivespot_audit_write_errors_total 240`,
	"FivespotLoadBalancerUnreachable":       "fivespot_load_balancers_unreachable{namespace=\"farm\",cluster=\"prod\"} 1\nfivespot_detaching_nodes{namespace=\"farm\",cluster=\"prod\",phase=\"Unknown\"} 2",
	"FivespotDeadlinesMissed":               `fivespot_deadlines_missed_total{namespace="farm",cluster="prod",reason="WaitingForLoadBalancers"} 40 3600000`,
	"FivespotRescheduleOverdue":             `fivespot_reschedule_requests{state="overdue"} 1`,
	"FivespotEvictionsUndecided":            `fivespot_eviction_verdicts_total{verdict="Error"} 240`,
	"FivespotNotRunning":                    ``,
	"FivespotReconcileFailures":             `fivespot_reconcile_failures_total{controller="reclaim"} 240`,
	"FivespotRuntimeExtensionNotRegistered": `fivespot_runtime_extension{state="Refused"} 1`,
}

// silent is the alert for a fleet without any samples.
const silent = "FivespotNotRunning"

const (
	length = 2 * time.Hour
	scrape = 30 * time.Second
)

var start = time.Unix(1_800_000_000, 0)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// alerts reads the rules as promtool would.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../config/monitoring/rule.yaml")), &object); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.LegacyValidation)
	for _, err := range errs {
		t.Error(err)
	}
	var list []rulefmt.Rule
	for _, g := range groups.Groups {
		list = append(list, g.Rules...)
	}
	if len(list) == 0 {
		t.Fatal("no alerts")
	}
	return list
}

func engine(t *testing.T) *promql.Engine {
	t.Helper()
	e := promql.NewEngine(promql.EngineOpts{
		Logger: promslog.NewNopLogger(), MaxSamples: 1 << 22, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true,
	})
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// firing evaluates every alert over the samples, and returns since when each has fired.
func firing(t *testing.T, samples *history) map[string]time.Duration {
	t.Helper()
	query := rules.EngineQueryFunc(engine(t), samples)
	fired := map[string]time.Duration{}
	for _, r := range alerts(t) {
		expr, err := parser.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
			labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
		for at := time.Duration(0); at <= length; at += time.Minute {
			if _, err := rule.Eval(t.Context(), 0, start.Add(at), query, nil, 0); err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			active := slices.DeleteFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
			if _, already := fired[r.Alert]; !already && len(active) > 0 {
				fired[r.Alert] = at
				checkText(t, r, active)
			}
		}
	}
	return fired
}

// checkText checks the text of an alert: every label that it names exists.
func checkText(t *testing.T, r rulefmt.Rule, active []*rules.Alert) {
	t.Helper()
	for _, a := range active {
		a.Annotations.Range(func(l labels.Label) {
			if strings.Contains(l.Value, "<error") || strings.Contains(l.Value, "<no value>") || strings.Contains(l.Value, " / ") || strings.Contains(l.Value, "Cluster  ") {
				t.Errorf("%s: %s says %q", r.Alert, l.Name, l.Value)
			}
		})
	}
}

func TestNoAlertOfAQuietFleet(t *testing.T) {
	if fired := firing(t, record(t, "")); len(fired) > 0 {
		t.Errorf("nothing is wrong, and these fire: %v", fired)
	}
}

func TestEachAlertFiresForItsFault(t *testing.T) {
	for _, r := range alerts(t) {
		t.Run(r.Alert, func(t *testing.T) {
			fault, ok := faults[r.Alert]
			if !ok {
				t.Fatal("nobody knows its fault")
			}
			samples := record(t, fault)
			if r.Alert == silent {
				samples = &history{}
			}
			fired := firing(t, samples)
			at, ok := fired[r.Alert]
			if !ok || at < time.Duration(r.For) {
				t.Errorf("it fires after %v, %t, want not before %v: %v", at, ok, time.Duration(r.For), fired)
			}
			delete(fired, r.Alert)
			if len(fired) > 0 {
				t.Errorf("others fire for the same fault: %v", fired)
			}
		})
	}
}

func TestEveryFaultHasItsAlert(t *testing.T) {
	known := map[string]bool{}
	for _, r := range alerts(t) {
		known[r.Alert] = true
	}
	for name := range faults {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestEveryPanelHasData evaluates each query at the end of the history, as Grafana would.
func TestEveryPanelHasData(t *testing.T) {
	samples, e := record(t, ""), engine(t)
	for title, queries := range panels(t) {
		for _, expr := range queries {
			q, err := e.NewInstantQuery(t.Context(), samples, nil, expr, start.Add(length))
			if err != nil {
				t.Errorf("%s: %v", title, err)
				continue
			}
			result := q.Exec(t.Context())
			vector, err := result.Vector()
			if err != nil || len(vector) == 0 {
				t.Errorf("%s: no data for %s: %v", title, expr, err)
			}
			for _, s := range vector {
				if math.IsNaN(s.F) {
					t.Errorf("%s: %s is no number for %s", title, expr, s.Metric)
				}
			}
			q.Close()
		}
	}
}

// panels returns the queries of the dashboard by the title of their panel.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../config/monitoring/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || all[p.Title] != nil || len(p.Targets) == 0 {
			t.Errorf("a panel without a title of its own, or without a query: %q", p.Title)
		}
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	if len(all) == 0 {
		t.Fatal("no panels")
	}
	return all
}
