// SPDX-License-Identifier: Apache-2.0

package system

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// API groups whose requests and responses a judge needs in the audit logs of the management cluster and of workload
// clusters.
var (
	JudgedInManagement = []string{"5spot.finos.org", "cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"}
	JudgedInWorkload   = []string{""}
)

// Judge reads the audit logs of all clusters so far, and the logs of managers at the paths. It prints which rules of
// 5-Spot were broken. It returns 1 if a default rule or one in more was broken, or if a log cannot be read, and
// otherwise 0. The result is for TestMain.
func (s *System) Judge(managers []string, more ...judge.Rule) int {
	rules := append(judge.Default(), more...)
	ruling, err := s.Ruling(managers, rules...)
	if err == nil {
		err = ruling.Print(os.Stdout, rules)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Judging what 5-Spot did:", err)
		return 1
	}
	return min(1, len(ruling.Breaks))
}

// Ruling evaluates the audit logs of all clusters so far, and the logs of managers at the paths. A manager's clock may
// be wrong, so its lines come last.
func (s *System) Ruling(managers []string, rules ...judge.Rule) (*judge.Ruling, error) {
	var logs, lines []iter.Seq2[judge.Record, error]
	paths := s.AuditLogs()
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		f, err := os.Open(paths[name])
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		logs = append(logs, judge.Read(name, f))
	}
	for _, path := range managers {
		f, err := os.Open(path) //nolint:gosec // an argument of the manager
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		lines = append(lines, judge.ReadLines(f))
	}
	return judge.Run(inTurn(append([]iter.Seq2[judge.Record, error]{judge.Merge(logs...)}, lines...)), rules...)
}

// inTurn reads one log after the other.
func inTurn(logs []iter.Seq2[judge.Record, error]) iter.Seq2[judge.Record, error] {
	return func(yield func(judge.Record, error) bool) {
		for _, log := range logs {
			for r, err := range log {
				if !yield(r, err) {
					return
				}
			}
		}
	}
}
