// SPDX-License-Identifier: Apache-2.0

// Package podorder answers one question: have the pods of a Node that leaves been stopped in
// the order that people asked for? These are the ones that a drain leaves, most of them
// those of DaemonSets. Package order decides; this package reads and deletes pods, by
// live calls that no worker waits for.
//
// Which pods are meant is on the Node, and what became of them on themselves: a manager that
// comes later goes on where the other stopped.
package podorder

import (
	"cmp"
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
	// DefaultDeadline is how long the pods of a Node have, all together.
	DefaultDeadline = 5 * time.Minute
	// callTimeout bounds one look at the pods, and what is deleted then.
	callTimeout = 10 * time.Second
	// podTimeout bounds the deletion of one pod: a disruption budget may ask to wait.
	podTimeout = 2 * time.Second
	// atOnce is how many pods are deleted at a time: as many as a Node may have by default, 110,
	// fit into one look, however long each takes.
	atOnce = 32
	// nextLook is when pods that are on their way are looked at again: nobody watches the
	// pods of all clusters for that.
	nextLook = 3 * time.Second
	// nextTry is when what was refused is tried again.
	nextTry = 5 * time.Second
)

// A Step stops the pods of Nodes in order, before Machines are terminated.
type Step struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache reaches them.
	ClusterCache clustercache.ClusterCache
	// Desk makes the calls. It is this step's alone, and wakes whoever looks.
	Desk *leaving.Desk
	// Deadline is how long the pods of a Node have; zero is DefaultDeadline.
	Deadline time.Duration
}

// Concerns implements leaving.Step: which pods there are is not known before they are read.
func (s *Step) Concerns(_ context.Context, m *clusterv1.Machine) (bool, error) {
	return m.Status.NodeRef.IsDefined(), nil
}

// Forget implements leaving.Step.
func (s *Step) Forget(machine types.UID) { s.Desk.Drop(machine) }

// Woken wakes a Machine whose pods have been looked at.
func (s *Step) Woken() source.Source { return s.Desk.Woken() }

// Look says whether the Machine waits for its pods. It begins a call where one is due, and
// waits for none.
func (s *Step) Look(ctx context.Context, d leaving.Departing, now time.Time) (leaving.Verdict, error) {
	if d.Phase != hooksv1.BeforeTermination || d.Node == "" {
		return leaving.Verdict{}, nil
	}
	return s.Desk.Follow(ctx, d, s.live(func(ctx context.Context) leaving.Answer { return s.look(ctx, d, nil) }), now), nil
}

func (s *Step) live(look func(context.Context) leaving.Answer) leaving.Live {
	has := cmp.Or(s.Deadline, DefaultDeadline)
	return leaving.Live{
		Look: look, Has: has, Call: callTimeout,
		Reason: v1alpha1.StoppingPodsReason, Unseen: "pods have not been looked at yet", Late: fmt.Sprintf("pods were not stopped within %s", has),
	}
}

// StopUnheld stops the pods of a Node without our pre-terminate hook, beside whatever drains it. request is
// the Node's, and is enqueued after each call to the workload cluster. leaves reports whether the Node, as it
// is read, still leaves. StopUnheld returns how soon to call it again, zero for not at all.
func (s *Step) StopUnheld(ctx context.Context, request types.NamespacedName, d leaving.Departing, leaves func(*corev1.Node) bool, now time.Time) time.Duration {
	asks := leaving.Departing{Phase: hooksv1.BeforeTermination, Began: now, Machine: &clusterv1.Machine{}}
	asks.Machine.Namespace, asks.Machine.Name, asks.Machine.UID, asks.Machine.Spec.ClusterName = request.Namespace, request.Name, types.UID(request.String()), d.Cluster().Name
	v := s.Desk.Follow(ctx, asks, s.live(func(ctx context.Context) leaving.Answer { return s.look(ctx, d, leaves) }), now)
	if v.Again.IsZero() {
		return 0
	}
	return max(v.Again.Sub(now), time.Millisecond)
}

// ForgetUnheld forgets a Node that does not leave, or is gone.
func (s *Step) ForgetUnheld(request types.NamespacedName) { s.Desk.Drop(types.UID(request.String())) }

// look looks at the pods once, and deletes those whose turn it is, unless the Node does not leave.
func (s *Step) look(ctx context.Context, d leaving.Departing, leaves func(*corev1.Node) bool) leaving.Answer {
	n, err := s.observe(ctx, d)
	if err != nil || n == nil {
		return leaving.Answer{Err: err}
	}
	if leaves != nil && !leaves(n.Node) {
		return leaving.Answer{Wait: nextLook} // The cache shows another Node: one of the two is late.
	}
	decision, refused, err := s.act(ctx, d, n)
	a := leaving.Answer{Says: strings.Join(append(decision.Notes, refused...), "; "), Err: err}
	switch {
	case decision.Done():
	case len(refused) > 0:
		a.Wait = nextTry
	default:
		a.Wait = nextLook
	}
	return a
}
