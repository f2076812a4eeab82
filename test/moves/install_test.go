// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// guardImage is the image of the released guard on real nodes.
const guardImage = "plane.local/eviction-guard:moves"

// An installation is a Cluster in which the manager installs the guard.
type installation struct{ scene }

// newInstallation makes the manager install the guard where machines are, until the test ends. No other test may run.
func newInstallation(t *testing.T, name string, kubelets bool) *installation {
	t.Helper()
	install := func(installs string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		err := shared.Manager.Stop()
		shared.Manager.AddArgs("--eviction-guard-install="+installs, "--eviction-guard-image="+guardImage)
		if err := errors.Join(err, shared.Manager.Start(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	install("enabled")
	t.Cleanup(func() { install("disabled") })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lab, err := shared.NewWorkload(ctx, plane.WorkloadOptions{
		Namespace: name, Name: name, RealNodes: kubelets, ClusterOptions: plane.ClusterOptions{AuditBodies: system.JudgedInWorkload},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &installation{newScene(t, lab, system.Guarded)}
}

// machine starts a machine.
func (i *installation) machine(name string, infra infrav1.PlaneMachineSpec) *v1alpha1.ScheduledMachine {
	i.Helper()
	sm := i.Start(system.ScheduledMachine(i.lab, i.lab.Key.Name+"-"+name, infra))
	i.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	return sm
}

// waitGuard waits until the guard's pods are ready, other than the ones of old.
func (i *installation) waitGuard(old *appsv1.Deployment) *appsv1.Deployment {
	i.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system.GuardAccount.Namespace, Name: system.GuardAccount.Name}}
	i.must(await.Object(i.step(), i.Workload, d, func() error {
		if d.UID == old.UID || d.Status.AvailableReplicas != *d.Spec.Replicas {
			return fmt.Errorf("Deployment %s: %+v", d.UID, d.Status)
		}
		return nil
	}))
	return d
}

// writes describes the manager's writes to the cluster.
func (i *installation) writes() (all []string) {
	i.Helper()
	events, err := i.lab.AuditEvents()
	i.must(err)
	for _, e := range events {
		if strings.Contains(e.UserAgent, system.ManagerName) && !slices.Contains([]string{"get", "list", "watch"}, e.Verb) && e.ObjectRef != nil && e.ResponseStatus != nil {
			all = append(all, e.ObjectRef.Resource+" "+e.ObjectRef.Name)
		}
	}
	return all
}

// wantSettled checks that the manager writes nothing.
func (i *installation) wantSettled() {
	i.Helper()
	before := i.writes()
	time.Sleep(10 * time.Second)
	if now := i.writes(); len(now) > len(before) {
		i.Errorf("a settled cluster is written: %q", now[len(before):])
	}
}

// TestTheManagerInstallsTheGuard once and in order, and restores objects that are deleted.
func TestTheManagerInstallsTheGuard(t *testing.T) {
	system.Long(t)
	i := newInstallation(t, "install", false)
	i.machine("box", infrav1.PlaneMachineSpec{})
	d := i.waitGuard(&appsv1.Deployment{})
	if image := d.Spec.Template.Spec.Containers[0].Image; image != guardImage {
		t.Errorf("it runs %s", image)
	}
	objects, err := manifests.Objects()
	i.must(err)
	var want []string
	for _, u := range objects {
		i.must(await.Object(i.step(), i.Workload, u.DeepCopy(), func() error { return nil }))
		kind := u.GroupVersionKind()
		mapping, err := i.Workload.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		i.must(err)
		want = append(want, mapping.Resource.Resource+" "+u.GetName())
	}
	got := slices.DeleteFunc(i.writes(), func(write string) bool { return !slices.Contains(want, write) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-as it is to be installed, +as it was:\n%s", diff)
	}
	i.wantSettled()

	_, err = i.lab.Kubectl(i.step(), "delete", "deployment", "-n", d.Namespace, d.Name)
	i.must(err)
	i.waitGuard(d)
	i.wantSettled()
}

// TestTheGuardRunsOnANode as the manager installs it: with its self-made certificate it answers a drain of another
// Node.
func TestTheGuardRunsOnANode(t *testing.T) {
	if err := shared.RealNodes(); err != nil {
		t.Skip(err)
	}
	i := newInstallation(t, "real", true)
	i.must(shared.ImportImage(i.step(), guardImage, shared.Program("eviction-guard")))
	begun := time.Now()
	i.machine("box", infrav1.PlaneMachineSpec{Backend: infrav1.Real})
	i.waitGuard(&appsv1.Deployment{})
	i.must(system.WaitGuarded(i.step(), i.lab.Cluster))
	t.Logf("the guard is called %v after the machine was made", time.Since(begun))
	i.wantSettled() // The manager does not remove its certificate.
	policy := &evictionv1.ReschedulePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: system.Guarded, Name: "db"},
		Spec: evictionv1.ReschedulePolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db-0"}},
			Request:     evictionv1.Request{Annotation: &evictionv1.Annotation{Key: moveKey, Value: "true"}},
		},
	}
	i.must(i.Workload.Create(i.step(), policy))

	worker := i.machine("worker", infrav1.PlaneMachineSpec{})
	pod := i.RunPod(worker, "db-0", i.Image)
	drained, ctx, node := make(chan error, 1), i.step(), worker.Status.NodeRef.Name
	go func() {
		_, err := i.lab.Kubectl(ctx, "drain", node, "--ignore-daemonsets", "--force")
		drained <- err
	}()
	i.waitAsked(pod)
	i.must(plane.Until(i.step(), func(context.Context) error {
		if n := len(i.tries(pod)); n < 2 {
			return fmt.Errorf("%d evictions were tried", n)
		}
		return nil
	}))
	i.WantUntouched(pod)
	i.must(i.Workload.Delete(i.step(), pod))
	i.must(<-drained)
}
