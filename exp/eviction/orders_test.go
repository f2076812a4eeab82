// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var (
	orders = flag.Int("orders", 60, "how many random orders TestAnyOrder tries; with -short 12 at most")
	order  = flag.Uint64("order", 0, "the order that TestThatOrder repeats")
)

// TestAnyOrder runs evictions, moves, drains, restarts and withdrawals in random orders. Each may also occur within an
// eviction, between its reads and its writes. Any write may fail, and any reply may be lost. Half of the guards have a
// late cache.
//
// It checks four rules. A pod that runs on a draining Node is never reported as gone. No answer waits for a pod that
// has moved. No more than maxConcurrent pods are moved at a time. No mark and no request remain at the end.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	*orders = testenv.Shorter(*orders, min(*orders, 12))
	for range 4 { // In parallel, as the API server allows.
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for range *orders / 4 {
				seed := rand.Uint64()
				if ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { newTale(t, seed).tell() }); !ok {
					return
				}
			}
		})
	}
}

// TestFailedOrders repeats orders that failed once: a guard set the tracking mark of a request that was withdrawn and
// deleted meanwhile.
func TestFailedOrders(t *testing.T) {
	t.Parallel()
	newTale(t, 7713738266605959220).tell()
}

// TestThatOrder repeats an order that failed.
func TestThatOrder(t *testing.T) {
	if *order == 0 {
		t.Skip("-order names no order that failed")
	}
	newTale(t, *order).tell()
}

// A tale is one order.
type tale struct {
	*world

	rand *rand.Rand
	// pods are the existing pods by name. byHand are the pods that a person marked.
	pods   map[string]*corev1.Pod
	byHand map[types.UID]bool
	// movedAt is when a pod took its name from a marked pod.
	movedAt map[types.UID]time.Time
	// busy reports that an event occurs within another event.
	busy int
	// disturbed reports that an event has occurred within this one.
	disturbed bool
	said      []string
}

func newTale(t *testing.T, seed uint64) *tale {
	t.Helper()
	w := &tale{rand: rand.New(rand.NewPCG(seed, 0)), pods: map[string]*corev1.Pod{}, byHand: map[types.UID]bool{}, movedAt: map[types.UID]time.Time{}}
	w.world = newWorld(t, 3, func(s *evictionv1.ReschedulePolicySpec) {
		s.MaxConcurrent = int32(w.rand.IntN(3))
		s.Fallback = []evictionv1.Fallback{evictionv1.FallbackAllow, evictionv1.FallbackDeny, evictionv1.FallbackDelete}[w.rand.IntN(3)]
		s.HealthyNode = []evictionv1.HealthyNode{evictionv1.HealthyNodeAllow, evictionv1.HealthyNodeAllow, evictionv1.HealthyNodeRelocate, evictionv1.HealthyNodeDeny}[w.rand.IntN(4)]
		s.Tracking = []evictionv1.TrackingType{evictionv1.TrackingNone, evictionv1.TrackingNamespace}[w.rand.IntN(2)]
		s.DeadlineSeconds = 3600
	})
	if w.rand.IntN(2) == 0 {
		w.late = &lateCache{w: w.world}
		w.late.catchUp(true, true, true)
		w.restart(interceptor.Funcs{})
	}
	for i := range 4 {
		name := fmt.Sprintf("db-%d", i)
		w.pods[name] = w.pod(name, w.rand.IntN(3))
	}
	return w
}

func (w *tale) note(format string, args ...any) {
	w.said = append(w.said, strings.Repeat("  ", w.busy)+w.clock.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// wrong fails the test, and prints all events.
func (w *tale) wrong(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s, after\n%s", fmt.Sprintf(format, args...), strings.Join(w.said, "\n"))
}

func (w *tale) tell() {
	w.Helper()
	w.drain(w.rand.IntN(3), true)
	for range 20 {
		w.next()
		w.check()
	}
	w.Fail = nil
	for i := range w.nodes {
		w.drain(i, false)
	}
	for range 12 { // Until no change by time is left.
		w.tend()
		w.pass(eviction.DefaultNameProtection + time.Second)
	}
	for _, p := range w.pods {
		if w.isMarked(p) && !w.byHand[p.UID] {
			w.wrong("%s is asked for", p.Name)
		}
	}
	if left := w.left(); left != "" {
		w.wrong("left: %s", left)
	}
}

// next runs one random event.
func (w *tale) next() {
	if w.late != nil {
		w.late.catchUp(w.rand.IntN(3) == 0, w.rand.IntN(3) == 0, w.rand.IntN(3) == 0)
	}
	name := slices.Sorted(maps.Keys(w.pods))[w.rand.IntN(len(w.pods))]
	switch w.rand.IntN(14) {
	case 0, 1, 2, 3, 4:
		w.evictAny(name)
	case 5, 6:
		w.move(name)
	case 7:
		node := w.rand.IntN(3)
		on := w.rand.IntN(2) == 0
		w.note("node %d drained %t", node, on)
		w.drain(node, on)
	case 8:
		w.tendAny()
	case 9:
		d := []time.Duration{5 * time.Second, verdict.QueueTTL + time.Second, 11 * time.Minute, 2 * time.Hour}[w.rand.IntN(4)]
		w.pass(d)
		w.note("%s pass", d)
	case 10:
		w.stale(name)
	case 11:
		w.note("guard restarts")
		w.restart(interceptor.Funcs{})
	case 12:
		w.giveUp(name)
	case 13:
		w.dieBeforeAsking(name)
	}
}

// giveUp uncordons the Node of a pod, and reconciles the requests until nothing changes at once.
func (w *tale) giveUp(name string) {
	w.Helper()
	p := w.pods[name]
	w.Read(p)
	for i, node := range w.nodes {
		if node.Name == p.Spec.NodeName {
			w.note("node %d drained no more", i)
			w.drain(i, false)
		}
	}
	for range 2 {
		w.tendAny()
	}
}

// dieBeforeAsking has a guard that ends after it created the request, and no retry for a while.
func (w *tale) dieBeforeAsking(name string) {
	w.Helper()
	written := false
	w.Fail = func(int) (before, after error) {
		if written {
			return testenv.ErrLost, nil
		}
		written = true
		return nil, nil
	}
	_, err := w.try(name)
	w.note("evict %s, and die: %v; QueueTTL passes", name, err)
	w.Fail = nil
	w.pass(verdict.QueueTTL + time.Second)
}

// longestCall is longer than an API server waits for an admission webhook.
const longestCall = 15 * time.Second

// disturb fails the next write, loses its reply, or runs another event before it. No call takes longer than verdict
// allows.
func (w *tale) disturb() {
	begin := w.clock.Now()
	w.Fail = func(int) (before, after error) {
		if w.clock.Now().Sub(begin) >= longestCall { // Every call has ended by then, and writes nothing more.
			return testenv.ErrLost, nil
		}
		switch w.rand.IntN(8) {
		case 0:
			w.note("a write is refused")
			return testenv.ErrLost, nil
		case 1:
			w.note("a reply is lost")
			return nil, testenv.ErrLost
		case 2, 3:
			if w.busy < 2 {
				fail := w.Fail
				w.busy++
				w.disturbed = true
				for range 1 + w.rand.IntN(4) {
					w.next()
				}
				w.busy--
				w.Fail = fail
				if w.clock.Now().Sub(begin) >= longestCall { // Every call has ended by then.
					w.note("a call has ended")
					return testenv.ErrLost, nil
				}
			}
		}
		return nil, nil
	}
}

func (w *tale) evictAny(name string) {
	w.Helper()
	outer := w.disturbed
	w.disturbed = false
	w.disturb()
	resp, err := w.try(name)
	w.note("evict %s: %d %s, %v", name, resp.Answer, resp.Outcome, err)
	if err == nil && !w.disturbed {
		w.judge(name, resp)
	}
	w.disturbed = w.disturbed || outer
	// The API server has no other reason to refuse, and a deleted pod ends at once.
	if p := w.pods[name]; err == nil && resp.Answer == verdict.Allow && resp.Pod.UID == p.UID || w.Read(p) && p.DeletionTimestamp != nil {
		w.leave(p)
		w.pods[name] = w.pod(name, w.rand.IntN(3))
	}
}

// judge checks an answer, unless another event occurred meanwhile.
func (w *tale) judge(name string, resp eviction.Response) {
	w.Helper()
	p := w.pods[name]
	if there := w.Read(p); !there || p.DeletionTimestamp != nil {
		return
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}}
	w.Read(node)
	switch drained := node.Spec.Unschedulable; {
	case drained && resp.Answer == verdict.Gone:
		w.wrong("%s runs on a Node that is drained, and is said to be gone", name)
	case drained && resp.Answer == verdict.Allow && resp.Outcome != verdict.Overdue:
		w.wrong("%s is evicted: %s", name, resp.Outcome)
	case resp.Outcome == verdict.Overdue && resp.Answer == verdict.Wait && resp.Write == verdict.None:
		// The pod stays. The guard's cache may show the pod that this one replaces.
	case resp.Outcome == verdict.Overdue && !w.byHand[p.UID] && !w.askedForLong(p):
		w.wrong("%s is overdue, and its operator has just been asked, or never", name)
	case !drained && resp.Answer == verdict.Wait && w.late == nil && w.movedFromDrained(p):
		w.wrong("%s has moved, and is waited for: %s", name, resp.Outcome)
	}
}

// askedForLong reports whether the deadline of a pod's operator has passed.
func (w *tale) askedForLong(p *corev1.Pod) bool {
	for _, r := range w.requests() { // The request may be for the pod that this one replaces.
		if r.Spec.Pod.UID == p.UID && !r.Spec.RequestedTime.IsZero() && !w.clock.Now().Before(r.Spec.RequestedTime.Add(time.Hour)) {
			return true
		}
	}
	at, err := time.Parse(time.RFC3339Nano, p.Annotations[evictionv1.RequestedAnnotation])
	return err == nil && !w.clock.Now().Before(at.Add(time.Hour))
}

// movedFromDrained reports whether a pod recently replaced a marked pod whose Node is still draining.
func (w *tale) movedFromDrained(p *corev1.Pod) bool {
	at, moved := w.movedAt[p.UID]
	if !moved || !w.clock.Now().Before(at.Add(eviction.DefaultNameProtection)) {
		return false
	}
	for _, r := range w.requests() {
		w.date(&r)
		if r.Spec.Pod.Name != p.Name || r.Spec.Pod.UID == p.UID || r.Spec.Intent != evictionv1.IntentEviction || r.CreationTimestamp.After(at) {
			continue
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Spec.NodeName}}
		return w.Read(node) && node.Spec.Unschedulable
	}
	return false
}

// move has the operator move a marked pod under its name, mostly to a Node that is not draining.
func (w *tale) move(name string) {
	w.Helper()
	p := w.pods[name]
	if !w.isMarked(p) {
		return
	}
	for i, node := range w.nodes {
		if w.Read(node); !node.Spec.Unschedulable || w.rand.IntN(4) == 0 {
			w.leave(p)
			w.pods[name] = w.pod(name, i)
			w.movedAt[w.pods[name].UID] = w.clock.Now().Truncate(time.Second)
			w.note("operator moves %s to node %d", name, i)
			return
		}
	}
	w.note("operator finds no Node for %s", name)
}

func (w *tale) tendAny() {
	w.Helper()
	w.disturb()
	for _, r := range w.requests() {
		done, err := w.reconciler.ReconcileRequest(w.Context(), client.ObjectKeyFromObject(&r))
		w.note("tend %s: %d, %v", r.Spec.Pod.Name, done.Change, err)
	}
}

// stale leaves a mark or a request of an earlier drain, or of a person.
func (w *tale) stale(name string) {
	w.Helper()
	if w.rand.IntN(2) == 0 {
		w.note("a person marks %s", name)
		p := w.pods[name]
		if w.Read(p) && p.Annotations[moveKey] == "" {
			w.byHand[p.UID] = true
			w.Edit(p, func() { metav1.SetMetaDataAnnotation(&p.ObjectMeta, moveKey, "please") })
		}
		return
	}
	w.note("an old request for a pod %s", name)
	r := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("old-%d", w.rand.Uint32())}}
	r.Spec = evictionv1.RescheduleRequestSpec{
		Pod: evictionv1.PodReference{Name: name, UID: types.UID(r.Name)}, NodeName: w.nodes[w.rand.IntN(3)].Name, Intent: evictionv1.IntentEviction,
		Policy: evictionv1.PolicyReference{Kind: evictionv1.NamespacedPolicy, Name: "db"}, Request: w.policy.Spec.Request,
	}
	w.Create(r)
	w.date(r)
}

// check fails if more pods are being moved than maxConcurrent. Pods that a person marked count against the others, but
// are not limited themselves.
func (w *tale) check() {
	w.Helper()
	most := int(w.policy.Spec.MaxConcurrent)
	if most == 0 {
		return
	}
	var moving []string
	for name, p := range w.pods {
		if !w.isMarked(p) || w.byHand[p.UID] {
			continue
		}
		if p.Annotations[evictionv1.RequestedAnnotation] != "" && !w.askedForLong(p) {
			moving = append(moving, name)
		}
	}
	if len(moving) > most {
		w.wrong("%v are moved at a time, of %d at most", moving, most)
	}
}
