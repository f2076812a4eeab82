// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// perCore is how many tests run in parallel per core. They wait for Cluster API half of the time. Twice as many are not
// faster, and delay requests by seconds.
const perCore = 4

// The one system of this binary, and the one workload cluster behind all Clusters of the tests.
var (
	shared   *system.System
	workload *plane.Cluster
)

// shipped are the periods in which the manager had its default rails, killed the times in them when it was killed, and
// decisions its audit logs.
var (
	shipped   []judge.Span
	killed    []time.Time
	decisions []string
)

// capMillionths is the departure cap in these periods: the fraction of a Cluster's machines that may start to leave in
// any 10 s.
const capMillionths = 50_000

// silences are the periods in which no manager may write anything.
var silences []judge.Silence

func TestMain(m *testing.M) {
	o := system.Options{
		Plane: plane.Options{
			FeatureGates: map[string]bool{"ClusterTopology": true},
			Management: plane.ClusterOptions{
				AuditBodies: system.JudgedInManagement,
			},
		},
		ManagerArgs: []string{"--reclaim-agent-image=" + agentImage},
	}
	run := func() int {
		code := max(m.Run(), shared.UnusedRights(alwaysOn, elsewhere))
		return max(code, shared.Judge(decisions, judge.Quiet(silences...), judge.During(judge.Cap(capMillionths), shipped...), judge.During(judge.FleetCap(capMillionths), shipped...),
			judge.During(judge.Wipe(), shipped...), judge.During(judge.Lines(false, killed...), shipped...)))
	}
	os.Exit(plane.Parallel(perCore*runtime.NumCPU(), func() int { return system.Main(o, prepare, run) }))
}

func prepare(ctx context.Context, s *system.System) error {
	shared = s
	var err error
	workload, err = s.NewCluster(ctx, "workload", plane.ClusterOptions{
		// Leases are long, see newCluster: a hundred Nodes would keep a core busy.
		AuditBodies: system.JudgedInWorkload, NodeMonitorGrace: 10 * time.Minute,
	})
	return err
}
