// SPDX-License-Identifier: Apache-2.0

// Package operator simulates the operator of a database for tests. It watches its pods for a mark, and moves marked
// pods to other Nodes. It may be slow, crash halfway, or ignore the mark.
package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// RescheduleAnnotation is the default mark, of Couchbase's operator.
	RescheduleAnnotation = "cao.couchbase.com/reschedule"
	// replacesAnnotation is on a pod with a new name, and has the UID of the pod that it replaces.
	replacesAnnotation = "operator.test/replaces"
	// interval is the time between two checks of the pods.
	interval = 100 * time.Millisecond
)

// Options configure an operator.
type Options struct {
	// Namespace and Labels select its pods.
	Namespace string
	Labels    map[string]string
	// Key is the annotation or label that marks a pod for a move, and Value its value. Empty are RescheduleAnnotation
	// and true.
	Key, Value string
	// InPlace keeps the name of a pod: the operator deletes it and recreates it on another Node. Otherwise it first
	// creates another pod, with a new name.
	InPlace bool
	// Delay is how long it works on a move before it deletes the pod.
	Delay time.Duration
}

// An Operator moves pods. It is safe for concurrent use.
type Operator struct {
	Options

	client client.Client
	clock  clock.PassiveClock

	mu     sync.Mutex
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	silent bool
	moves  []Move
	// begun is when it began to move each pod. A crash loses it.
	begun map[types.UID]time.Time
	// owed has the deleted pods that it must recreate. A real operator would find them in its custom resource.
	owed map[string]*corev1.Pod
}

// A Move is the move of one pod.
type Move struct {
	// From is the marked pod, To its replacement.
	From, To *corev1.Pod
	// At is when the move ended.
	At time.Time
}

// New returns an operator that is not started yet.
func New(c client.Client, o Options) *Operator {
	if o.Key == "" {
		o.Key, o.Value = RescheduleAnnotation, "true"
	}
	return &Operator{Options: o, client: c, clock: clock.RealClock{}, owed: map[string]*corev1.Pod{}}
}

// Start runs the operator until ctx ends or Stop is called. It restarts moves that it had begun before.
func (o *Operator) Start(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stop != nil {
		return
	}
	ctx, o.stop = context.WithCancel(ctx)
	o.begun = map[types.UID]time.Time{}
	o.tasks.Go(func() { o.run(ctx) })
}

// Stop ends it between two writes, as a crash would. A second call has no effect.
func (o *Operator) Stop() {
	o.mu.Lock()
	stop := o.stop
	o.stop = nil
	o.mu.Unlock()
	if stop != nil {
		stop()
		o.tasks.Wait()
	}
}

// Silence pauses or resumes the operator while it runs.
func (o *Operator) Silence(silent bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.silent = silent
}

// Moves returns the finished moves in their order.
func (o *Operator) Moves() []Move {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.moves)
}

func (o *Operator) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if o.isSilent() {
			continue
		}
		if err := o.look(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Info("Moving pods", "namespace", o.Namespace, "reason", err.Error())
		}
	}
}

func (o *Operator) isSilent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.silent
}

// look advances every marked pod by one step.
func (o *Operator) look(ctx context.Context) error {
	list := &corev1.PodList{}
	if err := o.client.List(ctx, list, client.InNamespace(o.Namespace), client.MatchingLabels(o.Labels)); err != nil {
		return err
	}
	for name, old := range o.owed {
		if slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.UID == old.UID }) {
			continue // It has not ended yet.
		}
		made, err := o.make(ctx, old, name)
		if err != nil {
			return err
		}
		delete(o.owed, name)
		o.moved(old, made)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if !pod.DeletionTimestamp.IsZero() || !o.asked(pod) {
			continue
		}
		if err := o.move(ctx, pod, list.Items); err != nil {
			return fmt.Errorf("moving %s: %w", pod.Name, err)
		}
	}
	return nil
}

func (o *Operator) asked(pod *corev1.Pod) bool {
	annotation, annotated := pod.Annotations[o.Key]
	label, labelled := pod.Labels[o.Key]
	return annotated && annotation == o.Value || labelled && label == o.Value
}

// move starts or ends the move of a pod.
func (o *Operator) move(ctx context.Context, pod *corev1.Pod, all []corev1.Pod) error {
	made := successor(all, pod.UID)
	if !o.InPlace && made == nil {
		var err error
		if made, err = o.make(ctx, pod, ""); err != nil {
			return err
		}
	}
	since, begun := o.begun[pod.UID]
	if !begun {
		since = o.clock.Now()
		o.begun[pod.UID] = since
	}
	if o.clock.Since(since) < o.Delay {
		return nil
	}
	if o.InPlace {
		if _, err := o.place(ctx, pod); err != nil {
			return err // The pod is not deleted before there is a Node for it.
		}
		o.owed[pod.Name] = pod.DeepCopy()
	}
	if err := o.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	if made != nil {
		o.moved(pod, made)
	}
	return nil
}

func successor(all []corev1.Pod, of types.UID) *corev1.Pod {
	i := slices.IndexFunc(all, func(p corev1.Pod) bool { return p.Annotations[replacesAnnotation] == string(of) })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func (o *Operator) moved(from, to *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moves = append(o.moves, Move{From: from.DeepCopy(), To: to.DeepCopy(), At: o.clock.Now()})
}

// make creates a pod like old on another Node. An empty name generates one.
func (o *Operator) make(ctx context.Context, old *corev1.Pod, name string) (*corev1.Pod, error) {
	node, err := o.place(ctx, old)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: name, Labels: template(old.Labels, o.Key), Annotations: template(old.Annotations, o.Key),
	}}
	if name == "" {
		pod.GenerateName = stem(old) + "-"
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, replacesAnnotation, string(old.UID))
	}
	old.Spec.DeepCopyInto(&pod.Spec)
	pod.Spec.NodeName = node
	if err := o.client.Create(ctx, pod); !apierrors.IsAlreadyExists(err) {
		return pod, err
	}
	return pod, o.client.Get(ctx, client.ObjectKeyFromObject(pod), pod) // It was created before a crash.
}

// stem is the name of a pod before its first move.
func stem(pod *corev1.Pod) string {
	if pod.GenerateName != "" {
		return strings.TrimSuffix(pod.GenerateName, "-")
	}
	return pod.Name
}

// template returns the labels or annotations of the operator's own template, without the mark and without others'
// additions.
func template(all map[string]string, asks string) map[string]string {
	own := map[string]string{}
	for k, v := range all {
		prefix, _, _ := strings.Cut(k, "/")
		if k != asks && !strings.HasSuffix(prefix, "5spot.finos.org") && prefix != "operator.test" {
			own[k] = v
		}
	}
	return own
}

// place returns a Node on which old does not run, and that accepts pods. Of the Nodes with the fewest pods of the
// namespace, it is the first by name.
func (o *Operator) place(ctx context.Context, old *corev1.Pod) (string, error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := o.client.List(ctx, nodes, client.MatchingLabels(old.Spec.NodeSelector)); err != nil {
		return "", err
	}
	if err := o.client.List(ctx, pods, client.InNamespace(o.Namespace)); err != nil {
		return "", err
	}
	load := map[string]int{}
	for i := range pods.Items {
		load[pods.Items[i].Spec.NodeName]++
	}
	best := ""
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Name != old.Spec.NodeName && takes(n) && (best == "" || load[n.Name] < load[best]) {
			best = n.Name
		}
	}
	if best == "" {
		return "", fmt.Errorf("no Node takes %s", old.Name)
	}
	return best, nil
}

// takes reports whether pods are scheduled to a Node.
func takes(n *corev1.Node) bool {
	return n.DeletionTimestamp.IsZero() && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	})
}
