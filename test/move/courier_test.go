// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/bootstrap/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// patience bounds one step. It is long, because a late step on a busy machine is no bug. clusterctl takes two minutes
// to time out on objects that are gone.
const patience = 6 * time.Minute

// A courier moves the one Cluster of a namespace, with its machine, from one management cluster to the other and back.
type courier struct {
	t      *testing.T
	random *rand.Rand
	key    client.ObjectKey
	// at is the present location of the Cluster, and sm its ScheduledMachine there.
	at int
	sm *v1alpha1.ScheduledMachine
	// joins is how often the machine should have joined so far.
	joins int
}

// newCourier has a machine that takes that many seconds to shut down.
func newCourier(t *testing.T, name string, random *rand.Rand, shutdown int32) *courier {
	t.Helper()
	c := &courier{t: t, random: random, key: client.ObjectKey{Namespace: name, Name: name}}
	w, err := c.here().Manage(c.ctx(), workload, plane.WorkloadOptions{Namespace: name, Name: name, NodeLeaseSeconds: 400})
	c.must(err)
	c.sm = system.ScheduledMachine(w, "box-of-"+name, infrav1.PlaneMachineSpec{Faults: infrav1.Faults{DeletionSeconds: shutdown}})
	c.sm.Spec.Schedule = open()
	if random != nil {
		c.cloned()
	}
	c.must(c.mgmt().Client.Create(c.ctx(), c.sm))
	c.joined()
	return c
}

// cloned makes the machine from templates, which move with it.
func (c *courier) cloned() {
	c.t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.key.Namespace, Name: "desk"}
	bootstrap := &bootstrapv1.PlaneConfigTemplate{ObjectMeta: meta}
	infra := &infrav1.PlaneMachineTemplate{ObjectMeta: meta}
	c.must(json.Unmarshal(c.sm.Spec.InfrastructureSpec.Spec.Raw, &infra.Spec.Template.Spec))
	c.must(c.mgmt().Client.Create(c.ctx(), bootstrap))
	c.must(c.mgmt().Client.Create(c.ctx(), infra))
	for ref, inline := range map[*v1alpha1.TemplateReference]*v1alpha1.EmbeddedObject{
		&c.sm.Spec.BootstrapTemplateRef: &c.sm.Spec.BootstrapSpec, &c.sm.Spec.InfrastructureTemplateRef: &c.sm.Spec.InfrastructureSpec,
	} {
		*ref = v1alpha1.TemplateReference{APIVersion: inline.APIVersion, Kind: inline.Kind + "Template", Name: meta.Name}
		*inline = v1alpha1.EmbeddedObject{}
	}
}

// open is a window that closes in six hours, closed one that opens then.
func open() v1alpha1.Schedule   { return window(6) }
func closed() v1alpha1.Schedule { return window(18) }

func window(from int) v1alpha1.Schedule {
	now := time.Now().UTC().Hour()
	return v1alpha1.Schedule{
		DaysOfWeek: []string{"mon-sun"}, Enabled: new(true), Timezone: "UTC",
		HoursOfDay: []string{fmt.Sprintf("%d-%d", (now+24-from)%24, (now+35-from)%24)},
	}
}

func (c *courier) here() *system.System  { return systems[c.at] }
func (c *courier) mgmt() *plane.Cluster  { return c.here().Management }
func (c *courier) there() *plane.Cluster { return systems[1-c.at].Management }

func (c *courier) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *courier) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// joined waits until the machine runs.
func (c *courier) joined() {
	c.t.Helper()
	c.joins++
	c.wait(v1alpha1.PhaseActive)
}

// cluster is the Cluster at its present location.
func (c *courier) cluster() *specs.Cluster {
	return &specs.Cluster{T: c.t, Management: c.mgmt().Client, Workload: workload.Client, Namespace: c.key.Namespace, Patience: patience}
}

// wait waits for a phase that has settled.
func (c *courier) wait(phase v1alpha1.Phase) {
	c.t.Helper()
	c.cluster().WaitPhase(c.sm, phase, metav1.ConditionTrue)
}

func (c *courier) edit(mutate func()) {
	c.t.Helper()
	c.must(c.cluster().Edit(c.sm, mutate))
}

// moment waits for a random time.
func (c *courier) moment(longest time.Duration) {
	d := time.Duration(c.random.Int64N(int64(longest)))
	c.t.Logf("moves after %v", d)
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// objects are the objects that a move transfers.
func (c *courier) objects() []client.Object {
	meta := metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.sm.Name}
	child := func(suffix string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name + suffix}
	}
	return []client.Object{
		&v1alpha1.ScheduledMachine{ObjectMeta: meta}, &clusterv1.Machine{ObjectMeta: child("-machine")},
		&infrav1.PlaneMachine{ObjectMeta: child("-infra")}, &bootstrapv1.PlaneConfig{ObjectMeta: child("-bootstrap")},
	}
}

// wantNone checks that none of objects is in a management cluster.
func (c *courier) wantNone(cluster *plane.Cluster, objects ...client.Object) {
	c.t.Helper()
	for _, obj := range objects {
		if err := cluster.Client.Get(c.ctx(), client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
			c.t.Errorf("%T %s is still there: %v", obj, obj.GetName(), err)
		}
	}
}

// departed waits until no Machine is being deleted. If an earlier move has created such a Machine in the target, the
// next move cannot update it, because clusterctl sends its deletion timestamp.
func (c *courier) departed() {
	c.t.Helper()
	c.must(plane.Until(c.ctx(), func(ctx context.Context) error {
		m := &clusterv1.Machine{}
		err := c.mgmt().Client.Get(ctx, client.ObjectKey{Namespace: c.key.Namespace, Name: c.sm.Name + "-machine"}, m)
		if err == nil && !m.DeletionTimestamp.IsZero() {
			return errors.New("the Machine is still leaving")
		}
		return client.IgnoreNotFound(err)
	}))
}

// move runs clusterctl move. It lists objects before it pauses the Cluster, and fails for objects that are deleted in
// between. docs/guide.md describes the remedy.
func (c *courier) move() {
	c.t.Helper()
	out, err := c.clusterctl()
	for again := 0; err != nil && again < 3 && strings.Contains(out, "not found"); again++ {
		c.t.Logf("clusterctl move: %v\n%s", err, out)
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}}
		c.must(c.mgmt().Client.Patch(c.ctx(), cluster, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":null}}`))))
		c.departed()
		out, err = c.clusterctl()
	}
	if err != nil {
		c.t.Fatalf("clusterctl move: %v\n%s", err, out)
	}
	c.wantNone(c.mgmt(), append(c.objects(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name}})...)
	c.at = 1 - c.at
	c.sm = &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.sm.Name}}
}

func (c *courier) clusterctl() (string, error) {
	c.t.Helper()
	cmd := exec.CommandContext(c.ctx(), c.here().Bin("clusterctl"), "move", "-n", c.key.Namespace, "--to-kubeconfig", c.there().Admin.Kubeconfig)
	cmd.Env = c.mgmt().Environ(c.t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// inItsWindow moves a running machine.
func (c *courier) inItsWindow() {
	c.t.Helper()
	before, node := c.sm.Status.DeepCopy(), c.cluster().Node(c.sm)
	c.moment(time.Second)
	c.move()
	c.wait(v1alpha1.PhaseActive)
	after := c.sm.Status
	before.MachineRef.UID = after.MachineRef.UID // The other API server creates another object.
	for what, pair := range map[string][2]any{
		"nextTransition": {before.NextTransition, after.NextTransition},
		"nextActivation": {before.NextActivation.UTC(), after.NextActivation.UTC()},
		"nextCleanup":    {before.NextCleanup.UTC(), after.NextCleanup.UTC()},
		"providerID":     {before.ProviderID, after.ProviderID},
		"machineRef":     {*before.MachineRef, *after.MachineRef},
	} {
		if pair[0] != pair[1] {
			c.t.Errorf("%s was %v before the move, and is %v", what, pair[0], pair[1])
		}
	}
	// The difference of the API server's clock and ours, plus the duration of the write.
	if d := before.LastScheduledTime.Sub(after.LastScheduledTime.Time).Abs(); d > 5*time.Second {
		c.t.Errorf("lastScheduledTime was %v before the move, and is %v", before.LastScheduledTime, after.LastScheduledTime)
	}
	if now := c.cluster().Node(c.sm); now.UID != node.UID || now.Spec.Unschedulable {
		c.t.Error("the Node saw the move")
	}
}

// inItsDeparture moves a machine that leaves because its window closed.
func (c *courier) inItsDeparture() {
	c.t.Helper()
	node := c.cluster().Node(c.sm)
	c.cluster().SetSchedule(c.sm, closed())
	c.moment(3 * time.Second)
	c.move()
	c.wait(v1alpha1.PhaseInactive)
	c.wantNone(c.mgmt(), c.objects()[1:]...)
	c.must(workload.WaitGone(c.ctx(), node))
	c.cluster().SetSchedule(c.sm, open())
	c.joined()
}

// inAnEmergency moves a machine with an owner's request.
func (c *courier) inAnEmergency() {
	c.t.Helper()
	before, node := c.sm.ReclaimTimes(), c.cluster().Node(c.sm)
	c.cluster().AskBack(node, "java")
	c.moment(time.Second)
	c.move()
	c.wait(v1alpha1.PhaseDisabled)
	record, reclaimed := c.sm.ServedReclaim()
	if !reclaimed || c.sm.ScheduleEnabled() || record.NodeUID != node.UID {
		c.t.Errorf("the request of Node %s is not on record: %v", node.UID, c.sm.Annotations)
	}
	if want := min(len(before)+1, 3); len(c.sm.ReclaimTimes()) != want {
		c.t.Errorf("one reclaim after %v is %v", before, c.sm.ReclaimTimes())
	}
	c.wantNone(c.mgmt(), c.objects()[1:]...)
	c.must(workload.WaitGone(c.ctx(), node))
	c.edit(func() { c.sm.Spec.Schedule.Enabled = new(true) })
	c.joined()
}

// end checks that nothing was created twice, and removes the machine.
func (c *courier) end() {
	c.t.Helper()
	made := 0
	for _, s := range systems {
		events, err := s.Management.AuditEvents()
		c.must(err)
		for _, e := range events {
			if e.User.Username == system.ManagerUser && e.ObjectRef != nil && e.ObjectRef.Namespace == c.key.Namespace &&
				e.ObjectRef.Resource == "machines" && e.ObjectRef.Subresource == "" && e.ResponseStatus != nil && e.ResponseStatus.Code == 201 {
				made++
			}
		}
	}
	if made != c.joins {
		c.t.Errorf("the machine joined %d times, and its Machine was made %d times", c.joins, made)
	}
	c.must(c.mgmt().Client.Delete(c.ctx(), c.sm))
	c.must(c.mgmt().WaitGone(c.ctx(), c.sm))
	c.wantNone(c.mgmt(), c.objects()...)
}
