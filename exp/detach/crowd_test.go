// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodelabel"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// slowly delays each call of the API server.
func slowly(c client.WithWatch, takes time.Duration) client.WithWatch {
	wait := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
			return nil
		}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := wait(ctx); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := wait(ctx); err != nil {
				return err
			}
			return c.SubResource(part).Patch(ctx, obj, patch, opts...)
		},
	})
}

func (w *world) crowd(n int, trigger string) {
	for i := range n {
		name := fmt.Sprintf("a-%04d", i)
		w.edge.servers[name] = &server{address: fmt.Sprintf("198.51.%d.%d", i/250, i%250+1)}
		w.attach(name, trigger, w.edge.servers[name].address)
	}
}

func (w *world) attach(name, trigger, address string) {
	a := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: detach.AttachmentName(cluster.Name, name), Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
	}}
	a.Spec.ClusterName, a.Spec.NodeName, a.Spec.Trigger, a.Spec.Addresses = cluster.Name, name, trigger, []string{address}
	a.Spec.TriggerTime = metav1.NewTime(time.Now())
	w.create(a)
}

// notes records when it had to drain a server.
type notes struct {
	*edge
	at map[string]time.Time
}

func (n notes) Drain(ctx context.Context, places []balancer.Membership) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, p := range places {
		n.at[p.Member] = time.Now()
	}
	return n.edge.Drain(ctx, places)
}

// TestEmergencyOvertakesThousandCordons cordons a thousand Nodes at once. A second later the owner of one requests
// their machine. A write to the API server takes 10 ms.
func TestEmergencyOvertakesThousandCordons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.crowd(1000, "Cordoned")
		w.edge.servers["zz"] = &server{address: "203.0.113.1"}
		c := slowly(w.WithWatch, 10*time.Millisecond)
		told := notes{w.edge, map[string]time.Time{}}
		r := &detach.BalancerReconciler{Clock: clock.RealClock{}, Reader: c, Live: c, Actuate: actuate.New(c), Recorder: &events.FakeRecorder{}, Drivers: only{told}}
		begin := time.Now()
		reclaimed := begin.Add(time.Second)
		go func() {
			time.Sleep(time.Second)
			w.attach("zz", "Emergency", "203.0.113.1")
		}()
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // The same as workers.Deadline.
			_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.balancer())})
			cancel()
			if err != nil {
				t.Logf("after %v: %.100v", time.Since(begin), err)
			}
			time.Sleep(50 * time.Millisecond)
			if w.edge.servers["zz"].drains {
				break
			}
		}
		if took := told.at["zz"].Sub(reclaimed); told.at["zz"].IsZero() || took > 5*time.Second {
			t.Errorf("the load balancer is told of the emergency after %v, of the first cordon after %v", took, told.at["a-0000"].Sub(begin))
		}
	})
}

// lane is Nodes with slow live reads.
type lane struct {
	nodes map[string]*corev1.Node
	takes time.Duration
}

func (l lane) Get(ctx context.Context, name string) (*corev1.Node, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(l.takes):
		return l.nodes[name].DeepCopy(), nil
	}
}

func (l lane) List(context.Context) (all []corev1.Node, err error) {
	for _, n := range l.nodes {
		all = append(all, *n)
	}
	return all, nil
}

func (l lane) Edit(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	if _, err := l.Get(ctx, node.Name); err != nil {
		return err
	}
	change(l.nodes[node.Name])
	return nil
}

// TestManyNodesAreMarked: 400 Nodes of a cluster that is 30 ms away leave at once, and one comes back.
func TestManyNodesAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := lane{map[string]*corev1.Node{}, 30 * time.Millisecond}
		for i := range 400 {
			name := fmt.Sprintf("a-%04d", i)
			w.attach(name, "Cordoned", "192.0.2.1")
			l.nodes[name] = w.nodeObject("ws-1", 1)
			l.nodes[name].Name = name
		}
		for i := range 500 { // Other Nodes, so that minMembers holds none.
			name := fmt.Sprintf("b-%04d", i)
			l.nodes[name] = w.nodeObject("ws-1", 1)
			l.nodes[name].Name = name
		}
		c := slowly(w.WithWatch, time.Millisecond)
		r := &detach.BalancerReconciler{Clock: clock.RealClock{}, Reader: c, Live: c, Actuate: actuate.New(c), Recorder: &events.FakeRecorder{}, Drivers: only{nodelabel.New(expv1.LabelBalancer{}, l, clock.RealClock{})}}
		begin := time.Now()
		marked := 0
		for time.Since(begin) < 10*time.Minute {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.balancer())})
			cancel()
			if err != nil {
				t.Logf("%.200v", err)
			}
			time.Sleep(result.RequeueAfter + time.Second)
		}
		for name, n := range l.nodes {
			if n.Labels[corev1.LabelNodeExcludeBalancers] == "true" && strings.HasPrefix(name, "a-") {
				marked++
			}
		}
		if marked < 400 {
			t.Errorf("%d of 400 Nodes are marked after ten minutes: %+v", marked, w.balancer().Status.Conditions)
		}
	})
}

// ponders delays the status of its members.
type ponders struct {
	*edge
	takes time.Duration
}

func (p ponders) Status(ctx context.Context, places []balancer.Membership) ([]balancer.Status, error) {
	time.Sleep(p.takes)
	return p.edge.Status(ctx, places)
}

// TestASlowLoadBalancerIsTold: one load balancer answers after four seconds. Connections end on five others, each of
// which reports that every ten seconds, because of pace.
func TestASlowLoadBalancerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.attach("ws-1", "Departure", "192.0.2.1")
		ctx, stop := context.WithCancel(t.Context())
		for i := range 5 {
			go func() {
				time.Sleep(time.Duration(2*i) * time.Second)
				for n := int64(1000); ctx.Err() == nil; n-- {
					a := w.attachment("ws-1") //nolint:contextcheck // It has the context of the test.
					before := a.DeepCopy()
					name := fmt.Sprint("other-", i)
					found := false
					for j := range a.Status.LoadBalancers {
						if p := &a.Status.LoadBalancers[j]; p.Name == name {
							p.Message, found = fmt.Sprint(n, " connections"), true
						}
					}
					if !found {
						a.Status.LoadBalancers = append(a.Status.LoadBalancers, expv1.BalancerProgress{Name: name, Phase: expv1.PhaseDraining})
					}
					_ = w.Status().Patch(ctx, a, client.MergeFrom(before))
					time.Sleep(10 * time.Second)
				}
			}()
		}
		c := w.WithWatch
		slow := ponders{w.edge, 4 * time.Second}
		r := &detach.BalancerReconciler{Clock: clock.RealClock{}, Reader: c, Live: c, Actuate: actuate.New(c), Recorder: &events.FakeRecorder{}, Drivers: only{slow}}
		begin := time.Now()
		rounds := 0
		for ; time.Since(begin) < 5*time.Minute && !w.edge.servers["ws-1"].drains; rounds++ {
			result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.balancer())})
			if err != nil && rounds < 5 {
				t.Logf("%v: %.200v", time.Since(begin), err)
			}
			time.Sleep(max(result.RequeueAfter, 50*time.Millisecond))
		}
		if !w.edge.servers["ws-1"].drains {
			t.Errorf("it is never told, in %v and %d rounds: its Machine goes with its connections", time.Since(begin), rounds)
		}
		stop()
		time.Sleep(time.Minute)
	})
}
