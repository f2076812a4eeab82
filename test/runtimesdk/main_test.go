// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// startTimeout bounds the start of everything; a busy machine takes a while.
const startTimeout = 3 * time.Minute

// shared is the one system of this binary. Tests that stop its programs are not
// parallel.
var shared *system.System

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	shared, err = system.Start(ctx, system.Options{
		Plane:            plane.Options{FeatureGates: map[string]bool{"ClusterTopology": true, "RuntimeSDK": true}},
		RuntimeExtension: true,
		// As in a pod, but for the address.
		ManagerArgs: []string{"--pod=" + system.ManagerAccount.Namespace + "/manager-0", "--reclaim-agent-image=none"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "Starting 5-Spot:", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		shared.DumpLogs(os.Stderr, 20)
	}
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "Stopping 5-Spot:", err)
		return 1
	}
	return code
}
