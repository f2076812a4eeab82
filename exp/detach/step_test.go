// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

func TestWhatAMachineWaitsFor(t *testing.T) {
	progress := func(phase expv1.AttachmentPhase, message string) *expv1.NodeAttachment {
		a := &expv1.NodeAttachment{}
		a.Spec.Trigger = "Departure"
		a.Status.LoadBalancers = []expv1.BalancerProgress{{Name: "edge", Generation: 1, Phase: phase, Message: message}}
		return a
	}
	master := progress(expv1.PhasePending, "")
	master.Spec.ControlPlane, master.Status.LoadBalancers = true, nil
	gone := progress(expv1.PhaseDraining, "")
	gone.Spec.Trigger = "NodeGone"
	half := progress(expv1.PhaseUnknown, "connection refused")
	half.Status.LoadBalancers[0].Members = []expv1.MembershipStatus{{State: "Unknown"}, {State: "Draining"}}
	attaching := progress(expv1.PhaseAttaching, "web/ws-1 is being restored")
	attaching.Spec.Trigger = ""
	for name, tc := range map[string]struct {
		reason     string
		attachment *expv1.NodeAttachment
		after      time.Duration
		grace      time.Duration
		change     func(*expv1.LoadBalancer, *clusterv1.Machine)
		holds      bool
		// asking means that no load balancer has answered. missed and failed are why the step does not hold.
		asking, missed, failed bool
		note                   string
	}{
		"NotAsked":  {reason: "Nobody has seen yet that it leaves.", holds: true, asking: true, note: "load balancer edge: not called yet"},
		"Attaching": {reason: "What was before does not count.", attachment: attaching, holds: true, asking: true, note: "load balancer edge: not called yet"},
		"Pending":   {reason: "Its places are being looked for.", attachment: progress(expv1.PhasePending, ""), holds: true, asking: true, note: "load balancer edge: not called yet"},
		"Draining":  {reason: "Connections are not cut.", attachment: progress(expv1.PhaseDraining, "web/ws-1 has 3 connections"), holds: true, note: "load balancer edge: web/ws-1 has 3 connections"},
		"Held":      {reason: "Somebody else is to come first.", attachment: progress(expv1.PhaseHeld, "web/ws-1 stays: only 0"), holds: true, note: "load balancer edge: web/ws-1 stays: only 0"},
		"Detached":  {reason: "It is out.", attachment: progress(expv1.PhaseDetached, "")},
		"Unknown":   {reason: "Unknown is not out.", attachment: progress(expv1.PhaseUnknown, "connection refused"), holds: true, note: "load balancer edge: connection refused"},
		"Ignored": {
			reason: "People have chosen not to wait for it.", attachment: progress(expv1.PhaseUnknown, "connection refused"),
			change: func(lb *expv1.LoadBalancer, _ *clusterv1.Machine) {
				lb.Spec.FailurePolicy = v1alpha1.FailurePolicyIgnore
			},
			failed: true, note: "load balancer edge failed and is ignored: connection refused",
		},
		"IgnoredInPart": {
			reason: "Connections that are known of are not cut.", attachment: half, holds: true,
			change: func(lb *expv1.LoadBalancer, _ *clusterv1.Machine) {
				lb.Spec.FailurePolicy = v1alpha1.FailurePolicyIgnore
			},
			note: "load balancer edge: connection refused",
		},
		"Gone": {reason: "Nobody sends connections to a Node that is gone.", attachment: gone},
		"Late": {
			reason: "An owner waits for the machine.", attachment: progress(expv1.PhaseDraining, "web/ws-1 has 3 connections"), after: 300 * time.Second,
			missed: true, note: "load balancer edge missed its deadline, spec.deadlineSeconds 300: web/ws-1 has 3 connections",
		},
		"HalfIsOver": {
			reason: "The drain needs time, too.", attachment: progress(expv1.PhaseDraining, "web/ws-1 has 3 connections"), after: 50 * time.Second, grace: 100 * time.Second,
			missed: true, note: "load balancer edge missed 50s, half of the machine's gracefulShutdownTimeout: web/ws-1 has 3 connections",
		},
		"ControlPlane": {
			reason: "Those stay.",
			change: func(_ *expv1.LoadBalancer, m *clusterv1.Machine) {
				m.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
			},
		},
		"ControlPlaneNode": {reason: "Only its Node says so, and nobody takes that out.", attachment: master},
		"ControlPlaneToo": {
			reason: "Somebody asks for them.", holds: true, asking: true, note: "load balancer edge: not called yet",
			change: func(lb *expv1.LoadBalancer, m *clusterv1.Machine) {
				lb.Spec.ControlPlane, m.Labels = true, map[string]string{clusterv1.MachineControlPlaneLabel: ""}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				lb, m := w.balancer(), w.machine("ws-1")
				if tc.change != nil {
					tc.change(lb, m)
					w.must(w.Update(w.Context(), lb))
				}
				if tc.attachment != nil {
					tc.attachment.Namespace, tc.attachment.Name = cluster.Namespace, detach.AttachmentName(cluster.Name, "ws-1")
					tc.attachment.Spec.ClusterName, tc.attachment.Spec.NodeName = cluster.Name, "ws-1"
					for i := range tc.attachment.Status.LoadBalancers {
						tc.attachment.Status.LoadBalancers[i].DiscoveryHash = detach.DiscoveryHash(tc.attachment)
					}
					status := tc.attachment.Status
					w.create(tc.attachment)
					tc.attachment.Status = status
					w.must(w.Status().Update(w.Context(), tc.attachment))
				}
				began := w.clock.Now()
				want := leaving.Verdict{Holds: tc.holds, Missed: tc.missed, Failed: tc.failed, Note: tc.note}
				if tc.holds {
					want.Reason, want.Again = v1alpha1.WaitingForLoadBalancersReason, began.Add(300*time.Second)
					want.Note += " (until " + want.Again.UTC().Format(time.RFC3339) + " at the latest)"
				}
				if tc.missed {
					want.Reason = v1alpha1.WaitingForLoadBalancersReason
				}
				if tc.asking {
					want.Reason = v1alpha1.WaitingForResponseReason
				}
				step := &detach.Step{Reader: w}
				if tc.after > 0 {
					_, err := step.Check(t.Context(), leaving.Departing{Machine: m, Node: "ws-1", Phase: hooksv1.BeforeDrain, Began: began}, began)
					w.must(err)
				}
				got, err := step.Check(t.Context(), leaving.Departing{Machine: m, Node: "ws-1", Phase: hooksv1.BeforeDrain, Began: began, Grace: tc.grace}, began.Add(tc.after))
				if !got.Holds && !got.Missed {
					got.Reason = "" // It has no meaning.
				}
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%s: error %v, -want, +got:\n%s", tc.reason, err, diff)
				}
				if got, err := step.Check(t.Context(), leaving.Departing{Machine: m, Node: "ws-1", Phase: hooksv1.BeforeTermination, Began: began}, began); err != nil || got.Holds {
					t.Errorf("after the drain nobody waits: %+v, %v", got, err)
				}
			})
		})
	}
}

// TestAManagerThatStartsAfterTheDeadline: no manager ran, or the Cluster was paused, from before the departure until after
// the deadline. Load balancers can still respond before the drain.
func TestAManagerThatStartsAfterTheDeadline(t *testing.T) {
	inWorld(t, func(w *world) {
		w.balancer()
		d := leaving.Departing{Machine: w.machine("ws-1"), Node: "ws-1", Phase: hooksv1.BeforeDrain, Began: w.clock.Now()}
		step := &detach.Step{Reader: w}
		start := d.Began.Add(time.Hour)
		look := func(after time.Duration) leaving.Verdict {
			v, err := step.Check(t.Context(), d, start.Add(after))
			w.must(err)
			return v
		}
		if v := look(0); !v.Holds || !v.Again.Equal(start.Add(30*time.Second)) {
			t.Errorf("%+v, want a wait of 30 s for the first response", v)
		}
		if v := look(30 * time.Second); v.Holds || !v.Missed {
			t.Errorf("%+v, want the deadline to end the wait", v)
		}
		step.Forget(d.Machine.UID) // The Cluster is paused.
		if v := look(time.Hour); !v.Holds {
			t.Errorf("%+v, want a wait after a pause", v)
		}
	})
}

// TestConcernsMachinesBehindLoadBalancers: Machines of a Cluster without load balancers cause no further calls.
func TestConcernsMachinesBehindLoadBalancers(t *testing.T) {
	inWorld(t, func(w *world) {
		m := w.machine("ws-1")
		for name, tc := range map[string]struct {
			change func()
			want   bool
		}{
			"Here":    {func() {}, true},
			"NoNode":  {func() { m.Status.NodeRef.Name = "" }, false},
			"Another": {func() { m.Status.NodeRef.Name = "ws-1"; m.Spec.ClusterName = "other" }, false},
		} {
			m = w.machine("ws-1")
			tc.change()
			if got, err := (&detach.Step{Reader: w}).Concerns(t.Context(), m); err != nil || got != tc.want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	})
}
