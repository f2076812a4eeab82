// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// shared is the one system of this binary. Tests that stop its programs are not
// parallel.
var shared *system.System

func TestMain(m *testing.M) {
	o := system.Options{
		Plane: plane.Options{
			FeatureGates: map[string]bool{"ClusterTopology": true, "RuntimeSDK": true},
			// Some Clusters here use the management cluster as control plane.
			Management: plane.ClusterOptions{AuditBodies: slices.Concat(system.JudgedInManagement, system.JudgedInWorkload)},
		},
		RuntimeExtension: true,
		// as in a pod, except the address
		ManagerArgs: []string{"--pod=" + system.ManagerAccount.Namespace + "/manager-0", "--reclaim-agent-image=none"},
	}
	use := func(_ context.Context, s *system.System) error {
		shared = s
		return nil
	}
	os.Exit(system.Main(o, use, func() int { return max(m.Run(), shared.Judge(nil)) }))
}
