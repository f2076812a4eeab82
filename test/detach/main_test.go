// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"os"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

var (
	shared *system.System
	lab    *plane.Workload
)

func TestMain(m *testing.M) {
	o := system.Options{
		Plane:       plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
		ManagerArgs: []string{"--feature-gates=NodeDetach=true"},
	}
	os.Exit(system.Main(o, prepare, func() int { return max(m.Run(), shared.Judge(nil)) }))
}

func prepare(ctx context.Context, s *system.System) (err error) {
	shared = s
	if lab, err = s.NewWorkload(ctx, plane.WorkloadOptions{Namespace: "lab", Name: "lab", ClusterOptions: plane.ClusterOptions{AuditBodies: system.JudgedInWorkload}}); err != nil {
		return err
	}
	return lab.EnsureNamespace(ctx, "lab")
}
