// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// region is two machines whose addresses are targets of a target group. The first machine has two ports there.
type region struct {
	*farm
	server *awselb.Server
	arn    string

	// before are all targets. without are the targets of the second machine.
	before, without []string
	// changes counts the calls that change targets.
	changes map[string]int
}

// newRegion starts everything. delay is the deregistration delay of the group, which 5-Spot discovers in the region.
func newRegion(t *testing.T, name string, delay time.Duration) *region {
	t.Helper()
	farm := newFarmOf(t, name, "10.0", 2, plane.ClusterOptions{NoScheduler: true})
	r := &region{farm: farm, changes: map[string]int{}}
	r.server = awselb.Start(t, awselb.Options{Delay: delay})
	r.arn = r.server.AddTargetGroup("web", types.TargetTypeEnumIp, 80)
	for _, d := range []types.TargetDescription{
		{Id: &r.addresses[0]}, {Id: &r.addresses[0], Port: aws.Int32(8080)}, {Id: &r.addresses[1]},
	} {
		r.server.AddTarget(r.arn, d)
	}
	r.before, r.without = r.targets(), []string{r.addresses[1] + ":80"}
	r.balanced(func(lb *expv1.LoadBalancer) {
		lb.Spec.TargetGroups = &expv1.TargetGroupsBalancer{AWSAccess: expv1.AWSAccess{Region: awselb.Region, Endpoint: r.server.URL}}
	})
	return r
}

// targets returns the registered targets.
func (r *region) targets() (all []string) {
	for _, d := range r.server.Targets(r.arn) {
		all = append(all, fmt.Sprintf("%s:%d", *d.Id, *d.Port))
	}
	slices.Sort(all)
	return all
}

// wantTargets waits until exactly these targets are registered.
func (r *region) wantTargets(want ...string) {
	r.Helper()
	r.until(func(context.Context) error {
		if got := r.targets(); !slices.Equal(got, want) {
			return fmt.Errorf("targets %v, want %v", got, want)
		}
		return nil
	})
}

// wantTold checks that targets were deregistered once, and registered the given number of times.
func (r *region) wantTold(registered int) {
	r.Helper()
	for action, n := range awselb.Count(r.server.Calls()) {
		if !strings.HasPrefix(action, "Describe") {
			r.changes[action] += n
		}
	}
	if r.changes["DeregisterTargets"] != 1 || r.changes["RegisterTargets"] != registered {
		r.Errorf("it was told %v, want DeregisterTargets once and RegisterTargets %d times", r.changes, registered)
	}
}

// wantEvictedAfter waits until a pod is deleted, and checks that this did not happen before earliest.
func (r *region) wantEvictedAfter(pod *corev1.Pod, earliest time.Time) {
	r.Helper()
	r.until(func(ctx context.Context) error {
		now := &corev1.Pod{}
		err := r.Workload.Get(ctx, client.ObjectKeyFromObject(pod), now)
		if err == nil && now.DeletionTimestamp.IsZero() {
			return errors.New("the pod runs")
		}
		return client.IgnoreNotFound(err)
	})
	if early := time.Until(earliest); early > 0 {
		r.Errorf("the pod was taken away %v before its targets have drained", early)
	}
}

// TestAnAutoscalerTaintsANode: both ports of the Node are deregistered once, and registered again when the taint is
// removed.
func TestAnAutoscalerTaintsANode(t *testing.T) {
	t.Parallel()
	r := newRegion(t, "tainted", 3*time.Second)
	pod := r.RunPod(r.machines[0], "work", r.Image)
	r.taint(0, "ToBeDeletedByClusterAutoscaler", true)
	r.wantTargets(r.without...)
	time.Sleep(20 * time.Second) // 5-Spot reads the targets again.
	r.wantTold(0)
	r.WantUntouched(pod)
	r.taint(0, "ToBeDeletedByClusterAutoscaler", false)
	r.wantTargets(r.before...)
	r.wantNoAttachment()
	r.wantTold(1)
	r.WantUntouched(pod)
}

// TestTargetsDrainBeforePodsAreEvicted: a machine leaves, and comes back.
func TestTargetsDrainBeforePodsAreEvicted(t *testing.T) {
	t.Parallel()
	const delay = 12 * time.Second
	r := newRegion(t, "targets", delay)
	pod := r.RunPod(r.machines[0], "work", r.Image)
	machine := r.machine(0)
	begun := time.Now() // The drain starts after this.
	r.SetSchedule(r.machines[0], specs.Closed())
	r.waitHeld(machine, " is draining")
	r.wantEvictedAfter(pod, begun.Add(delay))
	r.waitGone(machine)
	r.wantTargets(r.without...)
	r.SetSchedule(r.machines[0], specs.Always())
	r.WaitPhase(r.machines[0], v1alpha1.PhaseActive, metav1.ConditionTrue)
	r.wantTargets(r.before...)
	r.wantNoAttachment()
	r.wantTold(1)
}

// TestTheOtherReplicaGoesOn runs two replicas instead of the shared manager, so it is not parallel. The leader is
// killed after it has deregistered the targets. The webhooks belong to the stopped manager, so the test changes no
// ScheduledMachine.
func TestTheOtherReplicaGoesOn(t *testing.T) {
	system.Long(t)
	const delay = 30 * time.Second
	r := newRegion(t, "replicas", delay)
	pod := r.RunPod(r.machines[0], "work", r.Image)
	r.must(shared.Manager.Stop())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := shared.Manager.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	leader := r.startReplica("5spot-leader")
	first := r.waitLeader("")
	r.startReplica("5spot-standby")
	machine := r.machine(0)
	begun := time.Now() // The drain starts after this.
	r.must(r.Management.Delete(r.step(), machine))
	r.wantTargets(r.without...)
	r.must(leader.Kill())
	r.wantEvictedAfter(pod, begun.Add(delay))
	r.waitLeader(first)
	r.waitGone(machine)
	r.wantTold(0)
	r.WaitPhase(r.machines[0], v1alpha1.PhaseActive, metav1.ConditionTrue)
	r.wantTargets(r.before...)
	r.wantNoAttachment()
	r.wantTold(1)
}

// startReplica runs a manager that waits until it leads. It ends with the test.
func (f *farm) startReplica(name string) *plane.Process {
	f.Helper()
	p, err := shared.NewAddon(f.step(), plane.AddonOptions{
		Name: name, Path: shared.Program("manager"), ServiceAccount: system.ManagerAccount,
		Args: slices.Concat(system.Unlimited, managerArgs, []string{"--leader-elect", "--leader-election-namespace=" + system.ManagerAccount.Namespace}),
	})
	f.must(err)
	f.must(p.Start(f.step()))
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("log of %s:\n%s", name, p.LogTail(40))
		}
		_ = p.Stop()
	})
	return p
}

// waitLeader waits for a leader other than before, and returns it.
func (f *farm) waitLeader(before string) (leader string) {
	f.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: system.ManagerAccount.Namespace, Name: "controller-leader-election-5spot",
	}}
	f.must(await.Object(f.step(), f.Management, lease, func() error {
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == before || *lease.Spec.HolderIdentity == "" {
			return errors.New("nobody else leads")
		}
		leader = *lease.Spec.HolderIdentity
		return nil
	}))
	return leader
}
