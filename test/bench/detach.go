// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// goalSilent bounds how much longer an owner waits if a load balancer does not answer.
const goalSilent = 1.2

// benchDetach counts the calls to load balancers, and measures reclaims while one does not answer.
func benchDetach(ctx context.Context, b *bench) error {
	for name, value := range awselb.Environment() { // The manager inherits them.
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return b.withReclaims(ctx, func(ctx context.Context, r *reclaimBench) error {
		if err := r.countCalls(ctx); err != nil {
			return fmt.Errorf("counting calls: %w", err)
		}
		return r.behindSilence(ctx)
	}, "--feature-gates=NodeDetach=true")
}

// countCalls cordons and uncordons all Nodes of a target group, and counts the calls, also in the quiet time after
// that.
func (r *reclaimBench) countCalls(ctx context.Context) error {
	server := awselb.New(awselb.Options{Delay: 2 * time.Second})
	defer server.Close()
	group := server.AddTargetGroup("web", types.TargetTypeEnumIp, 80)
	names, err := r.targets(ctx, server, group)
	if err != nil {
		return err
	}
	lb := balancerOf(expv1.LoadBalancerSpec{
		MinMembers:   new(int32(0)),
		TargetGroups: &expv1.TargetGroupsBalancer{AWSAccess: expv1.AWSAccess{Region: awselb.Region, Endpoint: server.URL}, ARNs: []string{group}},
	})
	if err := r.lab.Management.Client.Create(ctx, lb); err != nil {
		return err
	}
	for _, c := range []struct {
		what     string
		cordoned bool
		want     int
	}{{"take a Node out", true, 0}, {"put a Node back", false, len(names)}} {
		if err := r.cordon(ctx, names, c.cordoned); err != nil {
			return err
		}
		if err := r.targeted(ctx, server, group, c.want); err != nil {
			return err
		}
		calls, told := tallied(server.Calls())
		each := func(n int) float64 { return float64(n) / float64(len(names)) }
		l := fmt.Sprintf("calls to AWS that %s, of %d in one group", c.what, len(names))
		r.lab.add(one(l, "per Node", len(names), each(told)).against("one each", one("", "", 0, 1)))
		r.lab.add(one("… and that look for it", "per Node", len(names), each(calls-told)))
	}
	if err := r.rested(ctx, server, len(names)); err != nil {
		return err
	}
	return r.without(ctx, lb)
}

// rested counts the calls in a quiet time.
func (r *reclaimBench) rested(ctx context.Context, server *awselb.Server, nodes int) error {
	if err := r.lab.quiet(ctx, 5*time.Second); err != nil {
		return err
	}
	server.Calls()
	if err := pause(ctx, r.lab.settled); err != nil {
		return err
	}
	management, err := r.lab.management.next()
	if err != nil {
		return err
	}
	calls, _ := tallied(server.Calls())
	perHour := time.Hour.Hours() / r.lab.settled.Hours()
	for _, f := range []struct {
		what string
		n    int
	}{{"calls to AWS while nothing happens", calls}, {"writes of 5-Spot while nothing happens", tally(management, request.ours).writes}} {
		r.lab.add(one(f.what, "per hour", nodes, float64(f.n)*perHour).goal("0", f.n == 0))
	}
	return nil
}

// targets starts machines whose addresses are targets.
func (r *reclaimBench) targets(ctx context.Context, server *awselb.Server, group string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience+time.Duration(r.lab.scale)*time.Second)
	defer cancel()
	for i := range r.lab.scale {
		address := fmt.Sprintf("10.0.%d.%d", i/200, 11+i%200)
		made, err := r.lab.create(ctx, fmt.Sprintf("web-%d", i), 1, infrav1.PlaneMachineSpec{Address: address}, nil)
		if err != nil {
			return nil, err
		}
		names = append(names, made...)
		server.AddTarget(group, types.TargetDescription{Id: &address})
	}
	return names, errors.Join(r.settle(ctx, names, v1alpha1.PhaseActive), r.lab.quiet(ctx, 3*time.Second))
}

// cordon cordons or uncordons Nodes, as a person.
func (r *reclaimBench) cordon(ctx context.Context, names []string, cordoned bool) error {
	return each(names, writers, func(name string) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machineOf(name)}}
		patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
		return r.lab.workload.Client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch)))
	})
}

// targeted waits until that many targets are left, and all NodeAttachments have reached their goal.
func (r *reclaimBench) targeted(ctx context.Context, server *awselb.Server, group string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return await.Until(ctx, func(ctx context.Context) error {
		if got := len(server.Targets(group)); got != want {
			return fmt.Errorf("%d targets, want %d", got, want)
		}
		list := &expv1.NodeAttachmentList{}
		if err := r.lab.Management.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if want > 0 && len(list.Items) > 0 {
			return fmt.Errorf("%d Nodes have places to come", len(list.Items))
		}
		return allOut(list)
	})
}

// allOut returns an error if a Node is not out yet.
func allOut(list *expv1.NodeAttachmentList) error {
	for i := range list.Items {
		a := &list.Items[i]
		for _, p := range a.Status.LoadBalancers {
			if p.Phase != expv1.PhaseDetached {
				return fmt.Errorf("%s is %s", a.Name, p.Phase)
			}
		}
	}
	return nil
}

// behindSilence measures reclaims with and without a load balancer that does not answer, in turns.
func (r *reclaimBench) behindSilence(ctx context.Context) error {
	silent, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0") // No process accepts its connections.
	if err != nil {
		return err
	}
	defer func() { _ = silent.Close() }()
	runs := max(1, min(r.lab.runs, crowdRuns)/2)
	if err := r.prepare(ctx, 4*runs); err != nil {
		return err
	}
	var with, without []reclaimed
	for _, behind := range []bool{false, true, true, false} {
		lb := balancerOf(expv1.LoadBalancerSpec{HAProxy: &expv1.HAProxyBalancer{Endpoints: []string{"tcp://" + silent.Addr().String()}}})
		if behind {
			if err := r.lab.Management.Client.Create(ctx, lb); err != nil {
				return err
			}
		}
		got, err := r.repeat(ctx, runs, r.once)
		if err != nil {
			return err
		}
		if !behind {
			without = append(without, got...)
			continue
		}
		with = append(with, got...)
		if err := r.without(ctx, lb); err != nil {
			return err
		}
	}
	none := spread("no load balancer: exec → infrastructure deleted", pick(without, toFreed))
	f := spread("one that does not answer: exec → infrastructure deleted", pick(with, toFreed)).against("none", none)
	r.lab.add(none)
	r.lab.add(f.goal(fmt.Sprintf("≤ %v × none", goalSilent), f.within(goalSilent)))
	return nil
}

// balancerOf is the load balancer of the lab.
func balancerOf(spec expv1.LoadBalancerSpec) *expv1.LoadBalancer {
	spec.ClusterName = clusterName
	return &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}, Spec: spec}
}

// without deletes a load balancer, and waits until it is gone.
func (r *reclaimBench) without(ctx context.Context, lb *expv1.LoadBalancer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return errors.Join(r.lab.Management.Client.Delete(ctx, lb), await.Gone(ctx, r.lab.Management.Client, lb))
}

// tallied returns the number of calls, and of changes among them.
func tallied(calls []awselb.Call) (all, told int) {
	for action, n := range awselb.Count(calls) {
		if all += n; !strings.HasPrefix(action, "Describe") {
			told += n
		}
	}
	return all, told
}
