// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"os"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// abreast is how many tests run in parallel. They wait most of the time.
const abreast = 4

// managerArgs turn the feature on. The guard of these tests runs as a process on this machine.
var managerArgs = []string{"--feature-gates=EvictionGuard=true", "--eviction-guard-install=disabled"}

var shared *site

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	o := system.Options{
		Plane:       plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
		ManagerArgs: managerArgs,
	}
	use := func(ctx context.Context, s *system.System) (err error) {
		shared, err = newSite(ctx, s)
		return err
	}
	run := func() int { return max(m.Run(), shared.Judge(nil)) }
	os.Exit(plane.Parallel(abreast, func() int { return system.Main(o, use, run) }))
}
