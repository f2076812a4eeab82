// SPDX-License-Identifier: Apache-2.0

package disaster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// machines is the size of the fleet. A hundred take long on two cores.
var machines = flag.Int("machines", 12, "have the disasters hit so many `machines`")

var (
	shared *system.System
	lab    *plane.Workload
	// dir is the folder of the managers' audit logs.
	dir string
)

// election are the arguments of a replica for leader election.
var election = []string{"--leader-elect", "--leader-election-namespace=" + system.ManagerAccount.Namespace}

// auditLog is the log of all managers with a correct clock.
func auditLog() string { return filepath.Join(dir, "audit.jsonl") }

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	var err error
	if dir, err = os.MkdirTemp("", "disaster"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	o := system.Options{
		Plane:   plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
		Metered: true, ManagerArgs: append(election, "--audit-log="+auditLog()),
	}
	code := system.Main(o, prepare, m.Run)
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func prepare(ctx context.Context, s *system.System) (err error) {
	shared = s
	if lab, err = s.NewWorkload(ctx, plane.WorkloadOptions{
		// Long leases: a hundred Nodes would keep a core busy.
		Namespace: namespace, Name: namespace, NodeLeaseSeconds: 400,
		ClusterOptions: plane.ClusterOptions{AuditBodies: system.JudgedInWorkload, NodeMonitorGrace: 10 * time.Minute},
	}); err != nil {
		return err
	}
	return lab.EnsureNamespace(ctx, namespace)
}
