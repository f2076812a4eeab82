// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"os"
	"testing"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// maxParallel is the number of concurrent tests. Each has its own control plane, and mostly waits.
const maxParallel = 3

// managerArgs enable the feature.
var managerArgs = []string{"--feature-gates=NodeDetach=true"}

var shared *system.System

// lists are rights that caches need if an API server does not stream lists.
var lists = map[system.Right]string{
	{Group: "exp.5spot.finos.org", Resource: "loadbalancers", Verb: "list"}:   "streamed",
	{Group: "exp.5spot.finos.org", Resource: "nodeattachments", Verb: "list"}: "streamed",
}

// ofGate reports whether a right belongs to the feature. test/e2e checks the others.
func ofGate(r system.Right) bool { return r.Group == "exp.5spot.finos.org" }

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	o := system.Options{
		Plane:       plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
		ManagerArgs: managerArgs,
	}
	for name, value := range awselb.Environment() {
		_ = os.Setenv(name, value) // The manager inherits the environment.
	}
	use := func(_ context.Context, s *system.System) error {
		shared = s
		return nil
	}
	run := func() int { return max(m.Run(), shared.UnusedRights(ofGate, lists), shared.Judge(nil)) }
	os.Exit(plane.Parallel(maxParallel, func() int { return system.Main(o, use, run) }))
}
