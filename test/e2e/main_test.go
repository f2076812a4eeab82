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

// perCore is how many tests run at once on a core. They wait for Cluster API half of the
// time. Twice as many take as long, and let requests wait for seconds.
const perCore = 4

// The one system of this binary, and the one workload cluster that all Clusters
// of the tests are made of.
var (
	shared   *system.System
	workload *plane.Cluster
)

// shipped are the times in which the manager ran as it ships, killed is when it was in them,
// and decisions are its audit logs.
var (
	shipped   []judge.Span
	killed    []time.Time
	decisions []string
)

// capMillionths is the part of a Cluster's machines that may start to leave in any 10 s then.
const capMillionths = 50_000

// silences are the times in which no manager was to write anything.
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
		return max(code, shared.Judge(decisions, judge.Quiet(silences...), judge.During(judge.Cap(capMillionths), shipped...),
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
