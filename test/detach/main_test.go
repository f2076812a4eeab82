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

// abreast is how many tests run at once. Each has a control plane of its own, and waits most of
// the time.
const abreast = 3

// managerArgs turn the feature on.
var managerArgs = []string{"--feature-gates=NodeDetach=true"}

var shared *system.System

// lists are rights that caches need where an API server does not stream lists.
var lists = map[system.Right]string{
	{Group: "exp.5spot.finos.org", Resource: "loadbalancers", Verb: "list"}:   "streamed",
	{Group: "exp.5spot.finos.org", Resource: "nodeattachments", Verb: "list"}: "streamed",
}

// ofGate are the rights of what the gate turns on. test/e2e judges the others.
func ofGate(r system.Right) bool { return r.Group == "exp.5spot.finos.org" }

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	o := system.Options{
		Plane:       plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
		ManagerArgs: managerArgs,
	}
	for name, value := range awselb.Environment() {
		_ = os.Setenv(name, value) // It is the manager's, too.
	}
	use := func(_ context.Context, s *system.System) error {
		shared = s
		return nil
	}
	run := func() int { return max(m.Run(), shared.UnusedRights(ofGate, lists), shared.Judge(nil)) }
	os.Exit(plane.Parallel(abreast, func() int { return system.Main(o, use, run) }))
}
