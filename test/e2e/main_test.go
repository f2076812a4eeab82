// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// parallel is how many tests run at once. They wait for Cluster API most of the
// time, so it is more than there are cores.
const parallel = 16

// The one system of this binary, and the one workload cluster that all Clusters
// of the tests are made of.
var (
	shared   *system.System
	workload *plane.Cluster
)

func TestMain(m *testing.M) {
	o := system.Options{
		Plane: plane.Options{
			FeatureGates: map[string]bool{"ClusterTopology": true},
			Management: plane.ClusterOptions{
				AuditBodies: []string{v1alpha1.GroupVersion.Group, clusterv1.GroupVersion.Group, infrav1.GroupVersion.Group},
			},
		},
		ManagerArgs: []string{"--reclaim-agent-image=" + agentImage},
	}
	run := func() int { return max(m.Run(), unusedRights()) }
	os.Exit(plane.Parallel(parallel, func() int { return system.Main(o, prepare, run) }))
}

func prepare(ctx context.Context, s *system.System) error {
	shared = s
	var err error
	workload, err = s.NewCluster(ctx, "workload", plane.ClusterOptions{
		// Leases are long, see newCluster: a hundred Nodes would keep a core busy.
		AuditBodies: []string{""}, NodeMonitorGrace: 10 * time.Minute,
	})
	return err
}
