// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
	"github.com/finos/cluster-api-addon-provider-5spot/test/operator"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// patience bounds each wait that has no longer timeout of its own.
	patience = time.Minute
	// keep is the guard's --name-protection-duration in these tests. A drainer retries after 5 s.
	keep = 20 * time.Second
	// leaseSeconds keeps the API server from spending its time on leases.
	leaseSeconds = 400
)

func guardOptions() system.GuardOptions {
	return system.GuardOptions{Args: []string{"--name-protection-duration=" + keep.String()}}
}

// controllers returns the controllers that pods and their budgets need. None of them taints Nodes.
func controllers() plane.ClusterOptions {
	return plane.ClusterOptions{NoScheduler: true, Controllers: []string{
		"garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "serviceaccount-token-controller",
		"root-ca-certificate-publisher-controller", "clusterrole-aggregation-controller", "disruption-controller",
	}}
}

// A world is a cluster with the eviction guard and simulated kubelets.
type world struct {
	*plane.Cluster

	guard   *system.Guard
	kubelet *simulation.Cluster
	// halt ends the kubelets.
	halt  context.CancelFunc
	typed kubernetes.Interface
}

func newWorld(ctx context.Context, c *plane.Cluster, o system.GuardOptions) (_ *world, err error) {
	w := &world{Cluster: c}
	if w.typed, err = kubernetes.NewForConfig(c.Admin.Config); err != nil {
		return nil, err
	}
	running, halt := context.WithCancel(context.WithoutCancel(ctx))
	w.halt = halt
	if w.kubelet, err = simulation.Start(running, c.Admin.Config); err != nil {
		return nil, err
	}
	if w.guard, err = system.NewGuard(ctx, planes, c, o); err != nil {
		return nil, err
	}
	return w, w.grant(ctx)
}

// trackingRights are the permissions that a policy with tracking by Namespace needs.
const trackingRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: track-namespaces, labels: {eviction.5spot.finos.org/aggregate-to-guard: "true"}}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, patch]}
`

// grant gives the guard the permissions for tracking, as in the docs, and returns when they are in effect.
func (w *world) grant(ctx context.Context) error {
	preset, err := os.ReadFile(filepath.Join(system.Repository(), "config/eviction-guard/policies/couchbase.yaml"))
	if err != nil {
		return err
	}
	objects, err := plane.Objects(append([]byte(trackingRights+"---\n"), preset...))
	if err != nil {
		return err
	}
	want := 0
	for _, obj := range objects {
		if obj.GetKind() == "ClusterRole" {
			want++
			if err := w.Client.Create(ctx, obj); err != nil {
				return err
			}
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "fivespot-eviction-guard-tracking"}}
	return w.Wait(ctx, role, func() error {
		if len(role.Rules) < want {
			return fmt.Errorf("it has the rules %v", role.Rules)
		}
		return nil
	})
}

// ownWorld is a world for one test.
func ownWorld(t *testing.T, o system.GuardOptions) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	c, err := planes.NewCluster(ctx, nameOf(t), controllers())
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(ctx, c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, r := range w.guard.Replicas {
				t.Logf("%s:\n%s", r.Name(), r.LogTail(20))
			}
		}
		w.halt()
		if err := errors.Join(w.guard.Stop(), c.Stop()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// named counts the names that nameOf has returned.
var named atomic.Int32

// nameOf returns the name of a test in the format of Kubernetes, with a unique number.
func nameOf(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")), "/", "-"), named.Add(1))
}

// A lab is the part of a world that one test uses: a namespace and some Nodes.
type lab struct {
	*world

	t     *testing.T
	ns    string
	nodes []string
}

// labels are the labels of pods that an operator moves.
var labels = map[string]string{"app": "couchbase"}

func newLab(t *testing.T, w *world, nodes int) *lab {
	t.Helper()
	l := &lab{world: w, t: t, ns: nameOf(t)}
	ctx := l.ctx()
	l.must(w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns, Labels: map[string]string{evictionv1.GuardedLabel: "enabled"}}}))
	for i := range nodes {
		name := fmt.Sprintf("%s-%d", l.ns, i)
		l.must(w.kubelet.Ensure(ctx, simulation.Node{Name: name, ProviderID: "test:///" + name, LeaseSeconds: leaseSeconds, Version: "v1.36.3"}))
		edit(l, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) {
			n.Labels["lab"], n.Spec.Taints = l.ns, nil // The Node is ready, and no controller removes that taint.
		})
		l.nodes = append(l.nodes, name)
	}
	// Pods are rejected before the controller manager has created this.
	l.must(w.Wait(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "default"}}, func() error { return nil }))
	return l
}

func (l *lab) ctx() context.Context { return l.within(patience) }

func (l *lab) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), d)
	l.t.Cleanup(cancel)
	return ctx
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// edit changes an object as another client would.
func edit[T client.Object](l *lab, obj T, change func(T)) {
	l.t.Helper()
	l.must(plane.Until(l.ctx(), func(ctx context.Context) error {
		if err := l.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		change(obj)
		return l.Client.Update(ctx, obj)
	}))
}

// cordon cordons or uncordons Nodes.
func (l *lab) cordon(cordoned bool, nodes ...string) {
	l.t.Helper()
	for _, name := range nodes {
		edit(l, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })
	}
}

// policy creates a policy for the pods that labels select.
func (l *lab) policy(change ...func(*evictionv1.ReschedulePolicySpec)) {
	l.t.Helper()
	p := &evictionv1.ReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "couchbase"}}
	p.Spec = evictionv1.ReschedulePolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: labels},
		Request:     evictionv1.Request{Annotation: &evictionv1.Annotation{Key: operator.RescheduleAnnotation, Value: "true"}},
	}
	for _, f := range change {
		f(&p.Spec)
	}
	l.must(l.Client.Create(l.ctx(), p))
}

// run runs a pod on a Node.
func (l *lab) run(name, node string, labels map[string]string, change ...func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, NodeSelector: map[string]string{"lab": l.ns}, TerminationGracePeriodSeconds: new(int64(5)),
			Containers: []corev1.Container{{Name: "main", Image: plane.PauseImage}},
		},
	}
	for _, f := range change {
		f(pod)
	}
	ctx := l.ctx()
	l.must(l.Client.Create(ctx, pod))
	l.must(l.Wait(ctx, pod, func() error {
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New("it does not run")
		}
		return nil
	}))
	return pod
}

// protected runs a pod that an operator moves, and returns when all replicas of the guard protect it.
func (l *lab) protected(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	l.t.Helper()
	pod := l.run(name, node, labels, change...)
	l.known(pod)
	return pod
}

// known returns when all replicas of the guard have a policy for a pod.
func (l *lab) known(pod *corev1.Pod) {
	l.t.Helper()
	for _, r := range l.guard.Replicas {
		l.must(plane.Until(l.ctx(), func(ctx context.Context) error {
			answer, err := sendReview(ctx, r, dryRun(pod))
			if err != nil {
				return err
			}
			if v := answer.AuditAnnotations["verdict"]; v == "NotSelected" {
				return fmt.Errorf("%s says %s", r.Name(), v)
			}
			return nil
		}))
	}
}

// operator starts an operator for the pods.
func (l *lab) operator(change ...func(*operator.Options)) *operator.Operator {
	l.t.Helper()
	o := operator.Options{Namespace: l.ns, Labels: labels}
	for _, f := range change {
		f(&o)
	}
	op := operator.New(l.Client, o)
	op.Start(l.t.Context())
	l.t.Cleanup(op.Stop)
	return op
}

// evict evicts a pod, and returns the API server's answer, nil if the pod is evicted. It retries if the guard did not
// answer in time, because the machine is busy.
func (l *lab) evict(name string, change ...func(*policyv1.Eviction)) *metav1.Status {
	l.t.Helper()
	unanswered := false
	for ctx := l.ctx(); ; {
		status, err := l.tryEvict(ctx, name, change...)
		l.must(err)
		switch {
		case status == nil:
			return nil
		case strings.Contains(status.Message, context.DeadlineExceeded.Error()):
			unanswered = true // This call may have marked the pod.
		case !strings.Contains(status.Message, "too many evictions are being decided"):
			if unanswered && strings.Contains(status.Message, waiting) {
				status.Message = asked + " by a call that timed out: " + status.Message
			}
			return status
		}
	}
}

// evictUntilMarked evicts a pod until it is marked, because the cache of the guard may be late. It returns the API
// server's last answer.
func (l *lab) evictUntilMarked(name string, change ...func(*policyv1.Eviction)) (status *metav1.Status) {
	l.t.Helper()
	l.until(l.ctx(), func() error {
		status = l.evict(name, change...)
		if said(http.StatusTooManyRequests, waiting, status) != nil {
			return said(http.StatusTooManyRequests, asked, status)
		}
		if l.get(name).Annotations[evictionv1.RequestedAnnotation] == "" { // Otherwise an earlier call has marked it.
			return errNotYet
		}
		return nil
	})
	return status
}

func (l *lab) tryEvict(ctx context.Context, name string, change ...func(*policyv1.Eviction)) (*metav1.Status, error) {
	e := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}}
	for _, f := range change {
		f(e)
	}
	err := l.typed.PolicyV1().Evictions(l.ns).Evict(ctx, e)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		return &s, nil
	}
	return nil, err
}

// code returns the HTTP code of an answer.
func code(s *metav1.Status) int32 {
	if s == nil {
		return 201
	}
	return s.Code
}

// want checks an answer.
func (l *lab) want(want int32, says string, status *metav1.Status) {
	l.t.Helper()
	if err := said(want, says, status); err != nil {
		l.t.Error(err)
	}
}

// said returns an error if an answer differs.
func said(want int32, says string, status *metav1.Status) error {
	message := ""
	if status != nil {
		message = status.Message
	}
	if code(status) != want || !strings.Contains(message, says) {
		return fmt.Errorf("got %d %q, want %d %q", code(status), message, want, says)
	}
	return nil
}

// until waits until cond returns nil.
func (l *lab) until(ctx context.Context, cond func() error) {
	l.t.Helper()
	l.must(plane.Until(ctx, func(context.Context) error { return cond() }))
}

// get reads a pod.
func (l *lab) get(name string) *corev1.Pod {
	l.t.Helper()
	pod := &corev1.Pod{}
	l.must(l.Client.Get(l.ctx(), client.ObjectKey{Namespace: l.ns, Name: name}, pod))
	return pod
}

// requests returns the RescheduleRequests of the namespace.
func (l *lab) requests() []evictionv1.RescheduleRequest {
	l.t.Helper()
	list := &evictionv1.RescheduleRequestList{}
	l.must(l.Client.List(l.ctx(), list, client.InNamespace(l.ns)))
	return list.Items
}

// wantAsked checks that a pod is marked, or is not.
func (l *lab) wantAsked(asked bool, names ...string) {
	l.t.Helper()
	for _, name := range names {
		pod := l.get(name)
		_, requested := pod.Annotations[evictionv1.RequestedAnnotation]
		if got := pod.Annotations[operator.RescheduleAnnotation] == "true"; got != asked || requested != asked {
			l.t.Errorf("%s has annotations %v, want it to be asked for: %t", name, pod.Annotations, asked)
		}
	}
}

// versions returns the resourceVersions of all objects that an eviction may change.
func (l *lab) versions() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &corev1.NamespaceList{}, &corev1.NodeList{}, &evictionv1.RescheduleRequestList{}, &evictionv1.ReschedulePolicyList{}, &policyv1.PodDisruptionBudgetList{},
	} {
		l.must(l.Client.List(l.ctx(), list))
		l.must(eachItem(list, func(o client.Object) {
			if own := o.GetNamespace(); own == l.ns || own == "" && (o.GetName() == l.ns || strings.HasPrefix(o.GetName(), l.ns+"-")) {
				all[fmt.Sprintf("%T %s", o, o.GetName())] = o.GetResourceVersion()
			}
		}))
	}
	return all
}

// unchanged checks that f causes no write.
func (l *lab) unchanged(f func()) {
	l.t.Helper()
	before, writes := l.versions(), len(l.writes())
	f()
	if diff := cmp.Diff(before, l.versions()); diff != "" {
		l.t.Errorf("nothing must be written: -before, +after:\n%s", diff)
	}
	if now := l.writes(); len(now) != writes {
		l.t.Errorf("the guard must write nothing, and did: %v", now[writes:])
	}
}

// writes returns the guard's writes in the namespace, from the audit log.
func (l *lab) writes() (all []string) {
	l.t.Helper()
	events, err := l.AuditEvents()
	l.must(err)
	for i := range events {
		e := &events[i]
		if e.User.Username != system.GuardUser || e.ObjectRef == nil || e.ObjectRef.Namespace != l.ns || e.ObjectRef.Resource == "events" {
			continue
		}
		if e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" {
			all = append(all, fmt.Sprintf("%s %s %s: %d", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Name, e.ResponseStatus.Code))
		}
	}
	return all
}
