// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestNoClientIsHarmed: one of two machines with traffic leaves on schedule. Connections fail only without the feature.
func TestNoClientIsHarmed(t *testing.T) {
	t.Parallel()
	for name, balanced := range map[string]bool{"Balanced": true, "Alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, map[bool]string{true: "balanced", false: "alone"}[balanced])
			if balanced {
				s.balance(nil)
			}
			clients := s.crowd(16)
			s.busy(clients)
			_, refused, cut := clients.counts()
			if refused+cut > 0 {
				t.Fatalf("%d connections are refused and %d cut before anybody leaves", refused, cut)
			}
			machine := s.machine(0)
			s.SetSchedule(s.machines[0], specs.Closed())
			said := s.waitGone(machine)
			time.Sleep(session) // New connections are served as well.
			clients.end()
			answers, refused, cut := clients.counts()
			t.Logf("answers %v, %d connections refused, %d cut; it said %q", answers, refused, cut, said)
			if balanced && refused+cut > 0 {
				t.Errorf("%d connections are refused, %d are cut", refused, cut)
			}
			if !balanced && (refused == 0 || cut == 0) {
				t.Errorf("nobody is harmed without the feature: the test shows nothing (%d refused, %d cut)", refused, cut)
			}
			if balanced && said == "" {
				t.Error("nobody was told for whom the machine waited")
			}
			if answers[s.servers[1].host] == 0 {
				t.Errorf("the other server answers nobody: %v", answers)
			}
		})
	}
}

// TestAMachineThatIsBackGetsItsPlace: a machine leaves, and its membership is restored when it comes back.
func TestAMachineThatIsBackGetsItsPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "back")
	s.balance(nil)
	machine := s.machine(0)
	s.SetSchedule(s.machines[0], specs.Closed())
	s.waitGone(machine)
	s.wantState("box-0", "drain")
	s.must(s.proxy.Reload(s.step(), s.config()))
	s.wantState("box-0", "drain") // HAProxy loses the drain, and 5-Spot drains it again.
	s.SetSchedule(s.machines[0], specs.Always())
	s.WaitPhase(s.machines[0], v1alpha1.PhaseActive, "True")
	s.wantState("box-0", "ready")
	s.wantNoAttachment()
}

// TestOthersDrainANode: kubectl cordons and uncordons a Node.
func TestOthersDrainANode(t *testing.T) {
	t.Parallel()
	s := newSite(t, "others")
	s.balance(nil)
	node := s.Node(s.machines[0])
	cordon := func(on bool) {
		before := node.DeepCopy()
		node.Spec.Unschedulable = on
		s.must(s.Workload.Patch(s.step(), node, client.MergeFrom(before), client.FieldOwner("kubectl-cordon")))
	}
	cordon(true)
	s.wantState("box-0", "drain")
	s.must(await.Object(s.step(), s.Workload, node, func() error {
		if node.Annotations[expv1.NodeDetachingAnnotation] != "true" {
			return fmt.Errorf("annotations %v", node.Annotations)
		}
		return nil
	}))
	// A reload swaps the addresses of the servers. The drain follows the address.
	swapped := strings.NewReplacer(s.servers[0].address, s.servers[1].address, s.servers[1].address, s.servers[0].address).Replace(s.config())
	s.must(s.proxy.Reload(s.step(), swapped))
	s.wantState("box-1", "drain")
	s.wantState("box-0", "ready")
	cordon(false)
	s.wantState("box-1", "ready")
	s.wantNoAttachment()
	for _, reason := range []string{expv1.DetachingReason, expv1.AttachingReason} {
		s.waitEvent(s.lab.Key.Name+"."+node.Name, reason)
	}
	s.must(s.Workload.Get(s.step(), client.ObjectKeyFromObject(node), node))
	if node.Spec.Unschedulable || node.Annotations[expv1.NodeDetachingAnnotation] != "false" {
		t.Errorf("Node %+v, annotations %v", node.Spec, node.Annotations)
	}
}

// TestTheLastMemberStays: the last member stays until the deadline, and the message has the reason.
func TestTheLastMemberStays(t *testing.T) {
	system.Long(t)
	t.Parallel()
	s := newSite(t, "last")
	s.balance(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 15 })
	_, err := s.proxy.Command(s.step(), "set server web/box-1 state maint")
	s.must(err)
	machine := s.machine(0)
	begun := time.Now()
	s.SetSchedule(s.machines[0], specs.Closed())
	said := s.waitGone(machine)
	if took := time.Since(begun); took < 15*time.Second {
		t.Errorf("it left after %v, before the deadline", took)
	}
	if want := " stays: only 0 other members get connections, and 1 must"; !strings.Contains(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}

// TestAnEmergencyWaitsForNobody compares the duration of a reclaim with and without a load balancer that does not
// answer.
func TestAnEmergencyWaitsForNobody(t *testing.T) {
	t.Parallel()
	took := map[bool][]time.Duration{}
	s := newSite(t, "owner")
	for range 3 {
		for _, balanced := range []bool{false, true} {
			var lb *expv1.LoadBalancer
			if balanced {
				lb = s.balance(func(lb *expv1.LoadBalancer) {
					lb.Name += fmt.Sprintf("-%d", len(took[true]))
					lb.Spec.HAProxy.Endpoints = []string{"tcp://192.0.2.1:9999"} // No host has this address.
					lb.Spec.DeadlineSeconds = 3600
				})
			}
			node, infra := s.Node(s.machines[0]), s.Children(s.machines[0])[1]
			begun := time.Now()
			s.AskBack(node, "java")
			s.until(func(ctx context.Context) error {
				err := s.Management.Get(ctx, client.ObjectKeyFromObject(infra), infra)
				if err == nil && infra.GetDeletionTimestamp().IsZero() {
					return errors.New("the owner waits")
				}
				return client.IgnoreNotFound(err)
			})
			took[balanced] = append(took[balanced], time.Since(begun))
			s.WaitPhase(s.machines[0], v1alpha1.PhaseDisabled, "")
			if lb != nil {
				s.must(s.Management.Delete(s.step(), lb))
			}
			s.must(s.Edit(s.machines[0], func() { s.machines[0].Spec.Schedule.Enabled = nil }))
			s.WaitPhase(s.machines[0], v1alpha1.PhaseActive, "True")
		}
	}
	t.Logf("without %v, with a load balancer that does not answer %v", took[false], took[true])
}

// busy waits until both servers have answered many requests.
func (s *site) busy(c *crowd) {
	s.Helper()
	s.until(func(context.Context) error {
		answers, _, _ := c.counts()
		for _, server := range s.servers {
			if answers[server.host] < 100 {
				return fmt.Errorf("answers %v", answers)
			}
		}
		return nil
	})
}
