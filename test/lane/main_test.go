// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

var (
	shared *system.System
	lab    *plane.Workload
	// diagnostics is the address of the manager's metrics.
	diagnostics string
)

func TestMain(m *testing.M) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	diagnostics = listener.Addr().String()
	_ = listener.Close()
	o := system.Options{ManagerArgs: []string{"--diagnostics-address=" + diagnostics, "--insecure-diagnostics"}}
	os.Exit(system.Main(o, prepare, m.Run))
}

func prepare(ctx context.Context, s *system.System) (err error) {
	shared = s
	if lab, err = s.NewWorkload(ctx, plane.WorkloadOptions{Namespace: "lab", Name: "lab"}); err != nil {
		return err
	}
	return lab.EnsureNamespace(ctx, "lab")
}
