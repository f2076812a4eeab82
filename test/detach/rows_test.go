// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestALoadBalancerThatDoesNotAnswer: one machine waits until the deadline. Another does not wait, because of
// failurePolicy Ignore.
func TestALoadBalancerThatDoesNotAnswer(t *testing.T) {
	system.Long(t)
	t.Parallel()
	f := newFarm(t, "silent", 2)
	lb := f.silentBalancer(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 20 })
	machine, begun := f.machine(0), time.Now()
	f.SetSchedule(f.machines[0], specs.Closed())
	said := f.waitGone(machine)
	if took := time.Since(begun); took < 20*time.Second {
		t.Errorf("it left after %v, before the deadline", took)
	}
	if want := "load balancer edge missed its deadline, spec.deadlineSeconds 20"; !strings.Contains(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
	f.waitEvent(lb.Name, expv1.CallFailedReason)

	f.must(f.Edit(lb, func() { lb.Spec.DeadlineSeconds, lb.Spec.FailurePolicy = 3600, v1alpha1.FailurePolicyIgnore }))
	machine = f.machine(1)
	f.SetSchedule(f.machines[1], specs.Closed())
	if said, want := f.waitGone(machine), "load balancer edge failed and is ignored: "; !strings.Contains(said, want) {
		t.Errorf("it said %q, want %q", said, want)
	}
}

// TestAClusterThatGoesWaitsForNoLoadBalancer deletes a Cluster with a machine that waits for a load balancer, and
// another machine.
func TestAClusterThatGoesWaitsForNoLoadBalancer(t *testing.T) {
	system.Long(t)
	t.Parallel()
	f := newFarm(t, "going", 2)
	lb := f.silentBalancer(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 3600 })
	waits, stays := f.machine(0), f.machine(1)
	f.SetSchedule(f.machines[0], specs.Closed())
	f.waitHeld(waits, "load balancer edge: ")
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.lab.Key.Name}}
	f.must(f.Management.Delete(f.step(), cluster))
	f.waitGone(waits)
	f.waitGone(stays)
	f.must(await.Gone(f.step(), f.Management, cluster))
	f.wantNoAttachment()
	f.must(f.Management.Delete(f.step(), lb))
	f.must(await.Gone(f.step(), f.Management, lb))
}

// TestTwoLeaveAtOnce: the load balancer always keeps one of its two members.
func TestTwoLeaveAtOnce(t *testing.T) {
	system.Long(t)
	t.Parallel()
	s := newSite(t, "both")
	s.balance(func(lb *expv1.LoadBalancer) { lb.Spec.DeadlineSeconds = 3600 })
	var looks, empty int
	ctx, stop := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			first, err := s.state(ctx, "box-0")
			second, err2 := s.state(ctx, "box-1")
			if err != nil || err2 != nil {
				continue
			}
			looks++
			if first == "drain" && second == "drain" {
				empty++
			}
		}
	})
	machines := []*clusterv1.Machine{s.machine(0), s.machine(1)}
	for _, sm := range s.machines {
		s.SetSchedule(sm, specs.Closed())
	}
	first := s.waitAnyGone(machines)
	other := 1 - first
	s.waitHeld(machines[other], " stays: only 0 other members get connections, and 1 must")
	s.SetSchedule(s.machines[first], specs.Always())
	s.WaitPhase(s.machines[first], v1alpha1.PhaseActive, metav1.ConditionTrue)
	s.waitGone(machines[other])
	s.wantState(fmt.Sprint("box-", first), "ready")
	stop()
	watch.Wait()
	if looks < 100 || empty > 0 {
		t.Errorf("of %d looks, %d found both servers out", looks, empty)
	}
}

// waitAnyGone waits until one of the Machines is gone, and returns its index.
func (f *farm) waitAnyGone(machines []*clusterv1.Machine) (gone int) {
	f.Helper()
	f.until(func(ctx context.Context) error {
		for i, m := range machines {
			err := f.Management.Get(ctx, client.ObjectKeyFromObject(m), &clusterv1.Machine{})
			if apierrors.IsNotFound(err) {
				gone = i
				return nil
			}
			if err != nil {
				return err
			}
		}
		return errors.New("all Machines are there")
	})
	return gone
}

// TestAnOutageLetsNobodyGo stops the API server of the workload cluster while a client keeps its connection to a
// draining server.
func TestAnOutageLetsNobodyGo(t *testing.T) {
	system.Long(t)
	t.Parallel()
	s := newSite(t, "outage")
	s.balance(nil)
	talk := s.talk(0)
	machine := s.machine(0)
	s.SetSchedule(s.machines[0], specs.Closed())
	s.waitHeld(machine, " has 1 connections")
	s.must(s.lab.APIServer.Kill())
	s.WaitCondition(s.machines[0], metav1.Condition{Type: v1alpha1.WorkloadClusterReachableCondition, Status: metav1.ConditionFalse, Reason: "NotConnected"})
	s.must(s.Management.Get(s.step(), client.ObjectKeyFromObject(machine), machine))
	if _, held := machine.Annotations[v1alpha1.PreDrainHookAnnotation]; !held {
		t.Error("the Machine is not held any more")
	}
	s.wantState("box-0", "drain")
	s.must(s.lab.APIServer.Start(s.step()))
	s.WaitCondition(s.machines[0], metav1.Condition{Type: v1alpha1.WorkloadClusterReachableCondition, Status: metav1.ConditionTrue})
	s.waitHeld(machine, " has 1 connections")
	if err := talk.end(); err != nil {
		t.Errorf("the client has lost its server: %v", err)
	}
	s.waitGone(machine)
}

// talk is a connection that is never idle for long.
type talk struct {
	conn    net.Conn
	answers *bufio.Reader
	over    chan error
	stop    context.CancelFunc
}

// talk opens a connection to the i-th server through the load balancer.
func (s *site) talk(i int) *talk {
	s.Helper()
	for range s.servers {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.proxy.Port(0)))
		s.must(err)
		s.Cleanup(func() { _ = conn.Close() })
		ctx, stop := context.WithCancel(s.Context())
		c := &talk{conn: conn, answers: bufio.NewReader(conn), over: make(chan error, 1), stop: stop}
		name, err := c.requestName()
		s.must(err)
		if name == s.servers[i].host {
			go c.hold(ctx)
			return c
		}
		stop()
		_ = conn.Close()
	}
	s.Fatalf("no connection came to %s", s.servers[i].host)
	return nil
}

// requestName requests the server's name.
func (c *talk) requestName() (name string, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c.conn, "who?\n"); err != nil {
		return "", err
	}
	name, err = c.answers.ReadString('\n')
	return strings.TrimSpace(name), err
}

// hold sends a request every second.
func (c *talk) hold(ctx context.Context) {
	for {
		if _, err := c.requestName(); err != nil {
			c.over <- err
			return
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			c.over <- nil
			return
		}
	}
}

// end closes the connection. It returns why the connection was lost before.
func (c *talk) end() error {
	c.stop()
	err := <-c.over
	_ = c.conn.Close()
	return err
}

// silentBalancer creates a LoadBalancer for a HAProxy that accepts connections and never answers.
func (f *farm) silentBalancer(change func(*expv1.LoadBalancer)) *expv1.LoadBalancer {
	f.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	f.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return f.balanced(func(lb *expv1.LoadBalancer) {
		lb.Spec.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{"tcp://" + l.Addr().String()}}
		change(lb)
	})
}

// taint adds or removes a taint of the Node of a machine, as an autoscaler does.
func (f *farm) taint(i int, key string, on bool) {
	f.Helper()
	node := f.Node(f.machines[i])
	before := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	if on {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Value: "1700000000", Effect: corev1.TaintEffectNoSchedule})
	}
	f.must(f.Workload.Patch(f.step(), node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("cluster-autoscaler")))
}
