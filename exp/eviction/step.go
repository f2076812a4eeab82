// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controllers/noderefutil"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/rails"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

const (
	// maxWait is how long a Machine without a gracefulShutdownTimeout waits. It equals the default of
	// deadlineSeconds.
	maxWait = 4 * time.Hour
	// callTimeout bounds one check of the pods, including the requests to operators.
	callTimeout = 10 * time.Second
	// maxParallelMoves bounds the pods that are processed in parallel. Each takes a few short calls.
	maxParallelMoves = 16
	// recheckWhileBlocked is the interval between checks while pods block the Machine. The manager does not watch the
	// pods of workload clusters.
	recheckWhileBlocked = 5 * time.Second
	// recheckWhileHeld is the interval between checks while only other steps hold the Machine. On a cordoned Node the
	// only new pods are the ones that were already starting.
	recheckWhileHeld = 15 * time.Second
)

// Step holds a Machine before its drain until operators have moved their pods off its Node. It requests the moves as
// the eviction guard does for other drainers. All state is in the pods and RescheduleRequests, so another manager can
// continue.
type Step struct {
	// Clock returns the current time.
	Clock clock.PassiveClock
	// APIClock returns the trust in Clock. With nil, Clock is trusted.
	APIClock *apiclock.Clock
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Calls runs the calls in the background, and enqueues a Machine after each call. No other step shares it.
	Calls *leaving.BackgroundCalls
	// By is the requester that RescheduleRequests record.
	By string
}

// Concerns implements leaving.Step. It returns true for every Machine with a Node, because policies and pods are not
// read yet.
func (s *Step) Concerns(_ context.Context, m *clusterv1.Machine) (bool, error) {
	return m.Status.NodeRef.IsDefined(), nil
}

// Forget implements leaving.Step.
func (s *Step) Forget(machine types.UID) { s.Calls.ForgetMachine(machine) }

// Woken returns the source of events that enqueue a Machine after a check of its pods.
func (s *Step) Woken() source.Source { return s.Calls.Woken() }

// Check returns whether the Machine waits for operators. It starts a call if one is due, and does not wait for it.
func (s *Step) Check(ctx context.Context, d leaving.Departing, now time.Time) (leaving.Verdict, error) {
	if d.Phase != hooksv1.BeforeDrain || d.Node == "" {
		return leaving.Verdict{}, nil
	}
	has, limit := maxWait, maxWait.String()
	if half, name := d.HalfGrace(); half > 0 {
		has, limit = half, name
	}
	return s.Calls.CheckRemote(ctx, d, leaving.RemoteCheck{
		Check: func(ctx context.Context) leaving.Response { return s.checkPods(ctx, d) }, MaxWait: has, Call: callTimeout,
		Reason:          v1alpha1.WaitingForOperatorsReason,
		TimedOut:        "operators did not move all pods within " + limit,
		RecheckInterval: recheckWhileHeld,
	}, now), nil
}

// A drainingNode is a Node that leaves, with its pods that operators move.
type drainingNode struct {
	*corev1.Node
	pods []corev1.Pod
	// policies reads the policies once per check.
	policies client.Reader
	// notes are warnings about policies, for people.
	notes []string
}

// checkPods checks the Node once: it cordons the Node, and requests the moves of pods that have no request yet. While the
// clock is suspect, it does nothing: the deadline of a pod may not have passed.
func (s *Step) checkPods(ctx context.Context, d leaving.Departing) leaving.Response {
	if s.APIClock.Trust() == rails.Suspect {
		return leaving.Response{Wait: rails.Apart, Message: "no pod is moved while the manager's clock may be wrong"}
	}
	reader, err := workload.Live(ctx, s.ClusterCache, d.Cluster())
	if err != nil {
		return leaving.Response{Err: err}
	}
	n, err := observe(ctx, reader, d.Node)
	if err != nil || n == nil {
		return leaving.Response{Err: err}
	}
	remote, err := s.Actuate.Remote(ctx, s.ClusterCache, d.Cluster())
	if err != nil {
		return leaving.Response{Err: err}
	}
	action := remote.For(actuate.OnNode(d.Machine, "MovePods", s.Clock.Now()))
	if err := cordon(ctx, action, n.Node); err != nil {
		return leaving.Response{Err: fmt.Errorf("cordoning Node: %w", err)}
	}
	if err := n.observePods(ctx, reader); err != nil {
		return leaving.Response{Err: err}
	}
	return s.requestMoves(ctx, reader, action, n)
}

// observe reads the policies and the Node. It returns nil if there is no Node or no policy; without a policy it does
// not read the Node.
func observe(ctx context.Context, reader client.Reader, node string) (*drainingNode, error) {
	policies, err := readPolicies(ctx, reader)
	if err != nil || policies == nil {
		return nil, err
	}
	n := &drainingNode{policies: policies}
	if n.Node, err = workload.Node(ctx, reader, node); err != nil || n.Node == nil {
		return nil, err
	}
	return n, nil
}

// observePods reads the pods on the Node that operators move.
func (n *drainingNode) observePods(ctx context.Context, reader client.Reader) error {
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, client.MatchingFields{"spec.nodeName": n.Name}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if f := podFacts(p, nil); !movable(p) || f.Pending || f.Finished || f.Leaving {
			continue
		}
		found, invalid, err := PoliciesFor(ctx, n.policies, p.Namespace)
		if err != nil {
			return err
		}
		for _, err := range invalid {
			n.notes = append(n.notes, err.Error())
		}
		switch policy, err := found.Of(ctx, n.policies, p); {
		case err != nil:
			return err
		case policy != nil:
			n.pods = append(n.pods, *p)
		}
	}
	slices.Sort(n.notes)
	n.notes = slices.Compact(n.notes)
	slices.SortFunc(n.pods, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// requestMoves requests the moves of all pods, up to maxParallelMoves in parallel.
func (s *Step) requestMoves(ctx context.Context, reader client.Reader, action actuate.Action, n *drainingNode) leaving.Response {
	evictor := &Evictor{Live: reader, Policies: n.policies, Write: action.Actuator, Clock: s.Clock, Taints: DrainTaints, NameProtection: DefaultNameProtection}
	verdicts := make([]moveState, len(n.pods))
	workqueue.ParallelizeUntil(context.WithoutCancel(ctx), maxParallelMoves, len(n.pods), func(i int) {
		verdicts[i] = s.requestMove(ctx, evictor, &n.pods[i]) // A move after the end of ctx fails, and holds the Machine.
	})
	return n.answer(verdicts)
}

// cordon makes the Node unschedulable. Otherwise an operator could start its pod there again, and pods that arrive
// after the check would not be seen. There is no uncordon: the Machine is being deleted.
func cordon(ctx context.Context, action actuate.Action, n *corev1.Node) error {
	before := n.DeepCopy()
	n.Spec.Unschedulable = true
	return action.Patch(ctx, n, before)
}

// moveState is the state of one pod.
type moveState struct {
	// holds reports that the pod blocks the Machine. missed reports that it does not, because its deadline passed.
	holds, missed bool
	note          string
}

// requestMove requests the move of a pod if it is its turn, and evaluates the response.
func (s *Step) requestMove(ctx context.Context, evictor *Evictor, pod *corev1.Pod) moveState {
	key := client.ObjectKeyFromObject(pod)
	resp, err := evictor.EvictLive(ctx, Attempt{Pod: key, UID: pod.UID, By: s.By})
	if err == nil && resp.Write == verdict.Mark {
		ctrl.LoggerFrom(ctx).Info("Requested a move from the operator", "Pod", key, "policy", resp.Policy.String(), "warnings", resp.Warnings)
	}
	switch {
	case err != nil:
		return moveState{holds: true, note: fmt.Sprintf("%s: %v", key, err)}
	case resp.Outcome == verdict.Overdue && resp.Answer == verdict.Allow:
		return moveState{missed: true, note: fmt.Sprintf("%s: %s: its operator did not move it within %s", key, resp.Policy, resp.Policy.deadline())}
	case resp.Outcome == verdict.Overdue && resp.Write == verdict.Delete: // The drain waits until the pod has ended.
		return moveState{missed: true, note: fmt.Sprintf("%s: %s", key, resp.Cause)}
	case resp.Answer == verdict.Wait:
		return moveState{holds: true, note: fmt.Sprintf("%s: %s", key, resp.Cause)}
	case resp.Outcome == verdict.HealthyNode, resp.Outcome == verdict.Rescheduled:
		return moveState{holds: true, note: fmt.Sprintf("%s: %s: another client uncordoned its Node: 5-Spot cordons it again", key, resp.Policy)}
	default: // The pod is gone or will be evicted.
		return moveState{}
	}
}

// answer combines the states of all pods.
func (n *drainingNode) answer(pods []moveState) leaving.Response {
	a, notes := leaving.Response{}, slices.Clone(n.notes)
	for _, p := range pods {
		if p.holds {
			a.Wait = recheckWhileBlocked
		}
		if a.Missed = a.Missed || p.missed; p.note != "" {
			notes = append(notes, p.note)
		}
	}
	if a.Wait > 0 && noderefutil.IsNodeUnreachable(n.Node) {
		a.Wait, a.Missed, notes = 0, true, append([]string{"the Node does not respond, so the Machine does not wait for its pods"}, notes...)
	}
	a.Message = strings.Join(notes, "; ")
	return a
}

// policySnapshot returns the policies that were read once. It reads everything else from the API server.
type policySnapshot struct {
	client.Reader

	own []evictionv1.ReschedulePolicy
	all []evictionv1.ClusterReschedulePolicy
}

// readPolicies returns nil if the cluster has no policy, or does not serve the kinds. If the kinds are not served, one
// call shows that. ClusterReschedulePolicy alone may be missing.
func readPolicies(ctx context.Context, reader client.Reader) (*policySnapshot, error) {
	own, all := &evictionv1.ReschedulePolicyList{}, &evictionv1.ClusterReschedulePolicyList{}
	err := reader.List(ctx, own)
	if actuate.Gone(err) {
		return nil, nil
	}
	if err == nil {
		if err = reader.List(ctx, all); actuate.Gone(err) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing policies of operators: %w", err)
	}
	if len(own.Items)+len(all.Items) == 0 {
		return nil, nil
	}
	return &policySnapshot{Reader: reader, own: own.Items, all: all.Items}, nil
}

// List implements client.Reader.
func (k *policySnapshot) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *evictionv1.ReschedulePolicyList:
		in := (&client.ListOptions{}).ApplyOptions(opts).Namespace
		list.Items = slices.DeleteFunc(slices.Clone(k.own), func(p evictionv1.ReschedulePolicy) bool { return p.Namespace != in })
	case *evictionv1.ClusterReschedulePolicyList:
		list.Items = slices.Clone(k.all)
	default:
		return k.Reader.List(ctx, list, opts...)
	}
	return nil
}
