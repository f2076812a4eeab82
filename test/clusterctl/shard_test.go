// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const sharding = "docs/sharding.md"

// TestTwoManagersShareTheFleet runs the commands of docs/sharding.md in their order,
// with Cluster API in the second shard.
func TestTwoManagersShareTheFleet(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	u := newShardUser(ctx, t)
	w, err := u.plane.NewWorkload(ctx, plane.WorkloadOptions{Name: "lab", Namespace: "farm"})
	u.must(err)

	u.follow(sharding, "Give the first manager a filter")
	u.start(ctx, system.ManagerName, u.deployment(ctx, deploymentKey.Name), u.components(first))
	u.follow(sharding, "Add a shard")
	shard := u.start(ctx, "5spot-b", u.deployment(ctx, "fivespot-b-controller-manager"))
	core := u.plane.Core()
	core.AddArgs("--watch-filter=shard-b")
	u.must(core.Restart(ctx))

	sm := system.ScheduledMachine(w, "box", infrav1.PlaneMachineSpec{})
	u.must(u.plane.Management.Client.Create(ctx, sm))
	if out := u.follow(sharding, "See what is served"); strings.Count(out, "\nfarm ") != 2 {
		t.Errorf("a ScheduledMachine that nobody serves is in both lists:\n%s", out)
	}
	u.follow(sharding, "Give a Cluster to a shard")
	s := &system.System{Plane: u.plane}
	u.must(s.WaitPhase(ctx, sm, v1alpha1.PhaseActive, metav1.ConditionTrue))
	if out := u.follow(sharding, "See what is served"); strings.Count(out, "\nfarm ") != 1 {
		t.Errorf("a ScheduledMachine that somebody serves is in the first list alone:\n%s", out)
	}
	u.leads(ctx, 2)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: sm.Status.NodeRef.Name}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, reclaim.RequestedAnnotation)
	u.must(w.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", patch)))
	u.must(s.WaitPhase(ctx, sm, v1alpha1.PhaseDisabled, metav1.ConditionTrue))

	u.must(shard.Stop())
	u.follow(sharding, "Upgrade and remove")
	err = u.plane.Management.Client.Get(ctx, client.ObjectKey{Namespace: deploymentKey.Namespace, Name: "fivespot-b-controller-manager"}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the shard's Deployment is still there: %v", err)
	}
	u.deployment(ctx, deploymentKey.Name)
}

// TestInstallWithoutClusterctl uses clusterctl only to fill in variables.
func TestInstallWithoutClusterctl(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	u := newShardUser(ctx, t)
	u.follow("docs/install.md", "Without clusterctl init")
	u.start(ctx, system.ManagerName, u.deployment(ctx, deploymentKey.Name), u.components(first))
	u.leads(ctx, 1)
}

// newShardUser is a user of a management cluster with Cluster API and without 5-Spot.
func newShardUser(ctx context.Context, t *testing.T) *user {
	t.Helper()
	p, err := plane.Start(ctx, plane.Options{Components: []plane.Component{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			p.DumpLogs(t.Output(), 20)
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	u := newUser(ctx, t, p)
	u.certManager()
	u.run(p.Bin("clusterctl"), "init", "--core", "cluster-api:v1.14.2", "--bootstrap", "-", "--control-plane", "-")
	u.must(v1alpha1.AddToScheme(p.Management.Client.Scheme()))
	u.must(p.StartComponents(ctx, plane.Options{Components: []plane.Component{plane.Core, plane.Infrastructure}}))
	return u
}

func (u *user) deployment(ctx context.Context, name string) *appsv1.Deployment {
	u.t.Helper()
	d := &appsv1.Deployment{}
	u.must(u.plane.Management.Client.Get(ctx, client.ObjectKey{Namespace: deploymentKey.Namespace, Name: name}, d))
	return d
}

// leads waits until there are as many leaders as shards.
func (u *user) leads(ctx context.Context, want int) {
	u.t.Helper()
	u.must(plane.Until(ctx, func(ctx context.Context) error {
		leases := &coordinationv1.LeaseList{}
		if err := u.plane.Management.Client.List(ctx, leases, client.InNamespace(deploymentKey.Namespace)); err != nil {
			return err
		}
		if len(leases.Items) != want {
			return fmt.Errorf("%d leases, want %d", len(leases.Items), want)
		}
		return nil
	}))
}
