// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	driver "github.com/finos/cluster-api-addon-provider-5spot/exp/detach/kubeproxy"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// nodes are the Nodes of the shared API server.
type nodes struct{ client.Client }

func (n nodes) Get(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := n.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	return node, err
}

func (n nodes) List(ctx context.Context) ([]corev1.Node, error) {
	var all corev1.NodeList
	err := n.Client.List(ctx, &all)
	return all.Items, err
}

func (n nodes) Edit(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	changed := node.DeepCopy()
	change(changed)
	return n.Patch(ctx, changed, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
}

// TestHealthCheck runs kube-proxy's health server with kube-proxy's own permissions.
func TestHealthCheck(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster := nodes{shared.Management.Client}
	if err := cluster.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}); err != nil {
		t.Fatal(err)
	}
	check := startHealthServer(ctx, t, "box")
	box := []balancer.Membership{{Member: "box"}}
	d := driver.New(expv1.KubeProxyBalancer{WaitSeconds: ptr.To[int32](0)}, cluster, clock.RealClock{})

	check(http.StatusOK, balancer.Attached, d, box)
	if err := d.Drain(ctx, box); err != nil {
		t.Fatal(err)
	}
	check(http.StatusServiceUnavailable, balancer.Drained, d, box)

	// cluster-autoscaler removes the taint when it starts.
	takeOff := func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == plan.AutoscalerTaint })
	}
	edit(ctx, t, cluster, takeOff)
	check(http.StatusOK, balancer.Attached, d, box)
	if err := d.Drain(ctx, box); err != nil {
		t.Fatal(err)
	}
	check(http.StatusServiceUnavailable, balancer.Drained, d, box)

	if err := d.Restore(ctx, box); err != nil {
		t.Fatal(err)
	}
	check(http.StatusOK, balancer.Attached, d, box)

	// The taint of cluster-autoscaler has the same effect, and stays.
	edit(ctx, t, cluster, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: plan.AutoscalerTaint, Value: "1772438400", Effect: corev1.TaintEffectNoSchedule})
	})
	check(http.StatusServiceUnavailable, balancer.Disabled, d, box)
	if err := d.Restore(ctx, box); err != nil {
		t.Fatal(err)
	}
	check(http.StatusServiceUnavailable, balancer.Disabled, d, box)
	edit(ctx, t, cluster, takeOff)
	check(http.StatusOK, balancer.Attached, d, box)
}

// edit changes the Node as another client.
func edit(ctx context.Context, t *testing.T, cluster nodes, change func(*corev1.Node)) {
	t.Helper()
	node, err := cluster.Get(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Edit(ctx, node, change); err != nil {
		t.Fatal(err)
	}
}

// startHealthServer returns a function that waits for a status of the health check, and compares the driver's result.
// kube-proxy's liveness must stay good all the time.
func startHealthServer(ctx context.Context, t *testing.T, node string) func(code int, state balancer.State, d balancer.Driver, m []balancer.Membership) {
	t.Helper()
	user, err := shared.Management.User("system:kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	free, err := shared.Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", free[0])
	get := func(ctx context.Context, path string, want int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			return fmt.Errorf("%s answers %d, want %d", path, response.StatusCode, want)
		}
		return nil
	}
	server := shared.NewProcess("kube-proxy-health", shared.Bin("kube-proxy-health"), []string{
		"--kubeconfig=" + user.Kubeconfig, "--hostname-override=" + node, "--healthz-bind-address=" + address,
	}, nil, func(ctx context.Context) error { return get(ctx, "/livez", http.StatusOK) })
	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return func(code int, state balancer.State, d balancer.Driver, m []balancer.Membership) {
		t.Helper()
		if err := plane.Until(ctx, func(ctx context.Context) error { return get(ctx, "/healthz", code) }); err != nil {
			t.Fatal(err)
		}
		if err := get(ctx, "/livez", http.StatusOK); err != nil {
			t.Error(err)
		}
		statuses, err := d.Status(ctx, m)
		if err != nil || statuses[0].State != state {
			t.Errorf("Status = %v, %v, want %s", statuses, err, state)
		}
	}
}
