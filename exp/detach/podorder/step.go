// SPDX-License-Identifier: Apache-2.0

// Package podorder stops the pods of a leaving Node in the order of their priority annotations. These are pods that a
// drain leaves, mostly pods of DaemonSets. Package order decides which pods are next. This package reads and stops the
// pods by live calls, which run outside the workers of the controllers.
//
// The Node's annotation records which pods are stopped. The pods' own state shows the progress, so a new manager
// continues where another one stopped.
package podorder

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

const (
	// deadline is the total time for all pods of a Node.
	deadline = 5 * time.Minute
	// callTimeout bounds one read of the pods and the deletions after it.
	callTimeout = 10 * time.Second
	// podTimeout bounds the call that stops one pod. An eviction may be retried because of a disruption budget.
	podTimeout = 2 * time.Second
	// atOnce is the number of concurrent calls. With it, 110 pods, the default maximum of a Node, fit into one
	// callTimeout.
	atOnce = 32
	// checkInterval is the interval between two reads of terminating pods. The manager does not watch all pods of
	// workload clusters.
	checkInterval = 3 * time.Second
	// nextTry is the delay after a refused eviction or deletion.
	nextTry = 5 * time.Second
)

// Step stops the pods of Nodes in order, before Machines are terminated. It implements leaving.Step.
type Step struct {
	// Clock returns the current time.
	Clock clock.PassiveClock
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache connects to the workload clusters.
	ClusterCache clustercache.ClusterCache
	// Calls runs the calls in the background, and enqueues the request after each call. Only this Step may use it.
	Calls *leaving.BackgroundCalls
}

// Concerns implements leaving.Step. It returns true for every Machine with a Node, because the pods are not read yet.
func (s *Step) Concerns(_ context.Context, m *clusterv1.Machine) (bool, error) {
	return m.Status.NodeRef.IsDefined(), nil
}

// Forget implements leaving.Step.
func (s *Step) Forget(machine types.UID) { s.Calls.ForgetMachine(machine) }

// Woken returns the source that enqueues a Machine after its pods were read.
func (s *Step) Woken() source.Source { return s.Calls.Woken() }

// Check returns whether the termination of the Machine waits for its pods. It starts a call if one is due, and does not
// wait for it.
func (s *Step) Check(ctx context.Context, d leaving.Departing, now time.Time) (leaving.Verdict, error) {
	if d.Phase != hooksv1.BeforeTermination || d.Node == "" {
		return leaving.Verdict{}, nil
	}
	return s.Calls.CheckRemote(ctx, d, s.live(func(ctx context.Context) leaving.Response { return s.stopPods(ctx, d, nil) }), now), nil
}

func (s *Step) live(check func(context.Context) leaving.Response) leaving.RemoteCheck {
	return leaving.RemoteCheck{
		Check: check, MaxWait: deadline, Call: callTimeout,
		Reason: v1alpha1.StoppingPodsReason, TimedOut: fmt.Sprintf("pods were not stopped within %s", deadline),
	}
}

// StopWithoutHook stops the pods of a Node without 5-Spot's pre-terminate hook, while another party drains it. request
// identifies the Node, and is enqueued after each call to the workload cluster. leaves reports whether the Node, as
// read live, still leaves. StopWithoutHook returns the delay until the next call; zero means none.
func (s *Step) StopWithoutHook(ctx context.Context, request types.NamespacedName, d leaving.Departing, leaves func(*corev1.Node) bool, now time.Time) time.Duration {
	departing := leaving.Departing{Phase: hooksv1.BeforeTermination, Began: now, Machine: &clusterv1.Machine{}}
	departing.Machine.Namespace, departing.Machine.Name, departing.Machine.UID, departing.Machine.Spec.ClusterName = request.Namespace, request.Name, types.UID(request.String()), d.Cluster().Name
	v := s.Calls.CheckRemote(ctx, departing, s.live(func(ctx context.Context) leaving.Response { return s.stopPods(ctx, d, leaves) }), now)
	if v.Again.IsZero() {
		return 0
	}
	return max(v.Again.Sub(now), time.Millisecond)
}

// ForgetWithoutHook drops the state of a Node that does not leave, or does not exist.
func (s *Step) ForgetWithoutHook(request types.NamespacedName) {
	s.Calls.ForgetMachine(types.UID(request.String()))
}

// stopPods reads the pods once and stops the current group. It does nothing if leaves returns false.
func (s *Step) stopPods(ctx context.Context, d leaving.Departing, leaves func(*corev1.Node) bool) leaving.Response {
	n, err := s.observe(ctx, d)
	if err != nil || n == nil {
		return leaving.Response{Err: err}
	}
	if leaves != nil && !leaves(n.Node) {
		return leaving.Response{Wait: checkInterval} // The cache and the live read differ: one of them is late.
	}
	decision, refused, err := s.act(ctx, d, n)
	a := leaving.Response{Message: strings.Join(append(decision.Notes, refused...), "; "), Err: err}
	switch {
	case decision.Done():
	case len(refused) > 0:
		a.Wait = nextTry
	default:
		a.Wait = checkInterval
	}
	return a
}
