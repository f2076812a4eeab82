// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/operator"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

const (
	asked    = "Reschedule annotation added to pod"
	wouldAsk = "Reschedule annotation would be added to pod (server dry run)"
	waiting  = "Pod waiting to be rescheduled"
	denied   = "Pod may not be evicted from a Node that is not being drained"
	inPlace  = "Pod has been rescheduled with the same name"
	gone     = "Pod no longer exists"
)

// TestUnprotectedPodsGo evicts pods that no policy selects, and pods of a namespace that is not guarded.
func TestUnprotectedPodsGo(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.known(l.run("db", l.nodes[0], labels))
	l.cordon(true, l.nodes[0])
	for name, labels := range map[string]map[string]string{"none": nil, "other-value": {"app": "web"}, "other-key": {"application": "couchbase"}} {
		pod := l.run(name, l.nodes[0], labels)
		l.want(http.StatusCreated, "", l.evict(name))
		l.must(l.WaitGone(l.ctx(), pod))
	}
	if w := l.writes(); len(w) > 0 {
		t.Errorf("nothing must be written: %v", w)
	}
	open := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}
	edit(l, open, func(n *corev1.Namespace) { n.Labels[evictionv1.GuardedLabel] = "disabled" })
	l.must(plane.Until(l.ctx(), func(ctx context.Context) error { // The API server observes the label a moment later.
		status, err := l.tryEvict(ctx, "db", inBody)
		if err != nil {
			return err
		}
		return said(http.StatusCreated, "", status)
	}))
	l.want(http.StatusCreated, "", l.evict("db"))
	if w := l.writes(); len(w) > 0 {
		t.Errorf("nothing must be written: %v", w)
	}
}

// inBody makes an eviction a dry run, as kubectl does.
func inBody(e *policyv1.Eviction) {
	e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
}

// TestOnlyEvictionsAreGuarded changes and deletes a protected pod.
func TestOnlyEvictionsAreGuarded(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	pod := l.protected("db", l.nodes[0])
	edit(l, pod, func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "a", "b") })
	l.must(l.Client.Delete(l.ctx(), pod))
	l.must(l.WaitGone(l.ctx(), pod))
	if w := l.writes(); len(w) > 0 {
		t.Errorf("nothing must be written: %v", w)
	}
}

// TestAnOperatorIsAskedOnce checks both answers and all writes, for each kind of mark.
func TestAnOperatorIsAskedOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request evictionv1.Request
		pod     func(*corev1.Pod)
	}{
		"Annotation": {evictionv1.Request{Annotation: &evictionv1.Annotation{Key: operator.RescheduleAnnotation, Value: "true"}}, func(*corev1.Pod) {}},
		"OtherAnnotation": {evictionv1.Request{Annotation: &evictionv1.Annotation{Key: "example.com/move", Value: "now"}}, func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, "example.com/move", "later") // This value is not the mark.
		}},
		"Label": {evictionv1.Request{Label: &evictionv1.Label{Key: "example.com/move", Value: "now"}}, func(*corev1.Pod) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 1)
			l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Request = tc.request })
			l.cordon(true, l.nodes[0])
			pod := l.protected("db", l.nodes[0], tc.pod)

			first := l.evictUntilMarked("db")
			got := l.get("db")
			var all map[string]string
			var key, value string
			if a := tc.request.Annotation; a != nil {
				all, key, value = got.Annotations, a.Key, a.Value
			} else {
				all, key, value = got.Labels, tc.request.Label.Key, tc.request.Label.Value
			}
			if all[key] != value || got.Annotations[evictionv1.RequestedAnnotation] == "" || got.UID != pod.UID || !got.DeletionTimestamp.IsZero() {
				t.Errorf("the pod must run, and ask with %s=%s: %v %v", key, value, got.Annotations, got.Labels)
			}
			if r := l.requests(); len(r) != 1 || r[0].Name != string(pod.UID) || r[0].Spec.NodeName != l.nodes[0] || r[0].Spec.Requester != "plane-admin" {
				t.Errorf("the request must name the pod, its Node and who asks: %+v", r)
			}
			var again *metav1.Status
			l.unchanged(func() {
				for range 3 {
					again = l.evict("db")
					l.want(http.StatusTooManyRequests, waiting, again)
				}
			})
			for _, s := range []*metav1.Status{first, again} {
				if s.Reason != metav1.StatusReasonTooManyRequests || s.Details == nil || s.Details.RetryAfterSeconds != 0 || len(s.Details.Causes) != 1 {
					t.Fatalf("it must say TooManyRequests, one cause, and not when to try again: %+v", s)
				}
			}
			if diff := cmp.Diff(first.Details.Causes, again.Details.Causes); diff != "" || !strings.Contains(first.Details.Causes[0].Message, "ReschedulePolicy couchbase: its operator has the request") {
				t.Errorf("the cause must stay, as Cluster API shows it: %s\n%v", diff, first.Details.Causes)
			}
			if h := l.evictHeader("db"); h.Get("Retry-After") != "" {
				t.Errorf("a client that sees Retry-After tries again at once: %v", h)
			}
		})
	}
}

// evictHeader returns the header of the API server's answer.
func (l *lab) evictHeader(name string) http.Header {
	l.t.Helper()
	c, err := rest.HTTPClientFor(l.Admin.Config)
	l.must(err)
	body, err := json.Marshal(&policyv1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "Eviction"}, ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}})
	l.must(err)
	req, err := http.NewRequestWithContext(l.ctx(), http.MethodPost, l.URL+"/api/v1/namespaces/"+l.ns+"/pods/"+name+"/eviction", bytes.NewReader(body))
	l.must(err)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	l.must(err)
	_ = res.Body.Close()
	return res.Header
}

// TestNothingIsWrittenInADryRun evicts with every form of a dry run.
func TestNothingIsWrittenInADryRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 2)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) {
		s.Tracking, s.HealthyNode = evictionv1.TrackingNamespace, evictionv1.HealthyNodeRelocate
	})
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	l.protected("healthy", l.nodes[1])
	l.protected("asked", l.nodes[0])
	l.evictUntilMarked("asked")
	inBody := func(e *policyv1.Eviction) {
		e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	l.unchanged(func() {
		for _, pod := range []string{"db", "healthy", "asked"} {
			l.want(http.StatusTooManyRequests, "(server dry run)", l.evict(pod, inBody))
			for _, options := range []*metav1.DeleteOptions{nil, {}} {
				err := l.Client.SubResource("eviction").Create(l.ctx(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: pod}},
					&policyv1.Eviction{DeleteOptions: options}, client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), "(server dry run)") {
					t.Errorf("a dry run in the query, with options %v: %v", options, err)
				}
			}
		}
		// It ends with its timeout, as with a disruption budget that allows no eviction.
		out, err := l.Kubectl(l.ctx(), "drain", l.nodes[0], "--dry-run=server", "--force", "--timeout=7s")
		if err == nil || !strings.Contains(err.Error(), "the operator of the pod is not asked in a dry run") || !strings.Contains(err.Error(), "global timeout reached") {
			t.Errorf("kubectl must say what holds it, and end: %v\n%s", err, out)
		}
	})
}

// TestWhomAnEvictionMeans evicts by a UID that the pod does not have.
func TestWhomAnEvictionMeans(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	pod := l.protected("db", l.nodes[0])
	uid := func(uid types.UID) func(*policyv1.Eviction) {
		return func(e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		}
	}
	l.unchanged(func() { l.want(http.StatusConflict, "", l.evict("db", uid("00000000-0000-0000-0000-000000000001"))) })
	l.evictUntilMarked("db", uid(pod.UID))
	l.want(http.StatusNotFound, gone, l.evict("nobody"))
}

// TestPodsThatDoNotRun are not moved.
func TestPodsThatDoNotRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	for name, run := range map[string]func() *corev1.Pod{
		"succeeded": func() *corev1.Pod { return l.ended(corev1.PodSucceeded) },
		"failed":    func() *corev1.Pod { return l.ended(corev1.PodFailed) },
		"unbound": func() *corev1.Pod {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "unbound", Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "x"}}}}
			l.must(l.Client.Create(l.ctx(), pod))
			return pod
		},
	} {
		pod := run()
		l.known(l.run("known-"+name, l.nodes[0], labels))
		if got := l.evict(pod.Name); code(got) != http.StatusCreated {
			t.Errorf("%s: %+v", name, got)
		}
		l.must(l.WaitGone(l.ctx(), pod))
	}
	leaving := l.protected("leaving", l.nodes[0], stays)
	l.must(l.Client.Delete(l.ctx(), leaving))
	l.want(http.StatusCreated, "", l.evict("leaving"))
	l.must(l.Client.Delete(l.ctx(), leaving, client.GracePeriodSeconds(0)))
	if w := l.writes(); len(w) > 0 {
		t.Errorf("nothing must be written: %v", w)
	}
}

// ended is a pod that has ended.
func (l *lab) ended(phase corev1.PodPhase) *corev1.Pod {
	l.t.Helper()
	pod := l.protected(strings.ToLower(string(phase)), l.nodes[0])
	pod.Status.Phase = phase
	l.must(l.Client.Status().Update(l.ctx(), pod))
	return pod
}

// TestOnAHealthyNode tries each policy on a Node that is not draining.
func TestOnAHealthyNode(t *testing.T) {
	t.Parallel()
	for healthy, tc := range map[evictionv1.HealthyNode]struct {
		code        int32
		says, again string
		asked       bool
	}{
		evictionv1.HealthyNodeAllow:    {http.StatusCreated, "", "", false},
		evictionv1.HealthyNodeRelocate: {http.StatusTooManyRequests, asked, waiting, true},
		evictionv1.HealthyNodeDeny:     {http.StatusTooManyRequests, denied, denied, false},
	} {
		t.Run(string(healthy), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 1)
			l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.HealthyNode = healthy })
			pod := l.run("db", l.nodes[0], labels)
			l.cordon(true, l.nodes[0])
			l.known(pod)
			l.cordon(false, l.nodes[0])
			l.want(tc.code, tc.says, l.evict("db"))
			if tc.code == http.StatusCreated {
				l.must(l.WaitGone(l.ctx(), pod))
				return
			}
			l.wantAsked(tc.asked, "db")
			l.want(tc.code, tc.again, l.evict("db"))
		})
	}
}

// TestASilentOperator tries each fallback, with a disruption budget that allows no eviction.
func TestASilentOperator(t *testing.T) {
	t.Parallel()
	for fallback, tc := range map[evictionv1.Fallback]struct {
		says    string
		deletes bool
	}{
		evictionv1.FallbackAllow:  {"disruption budget", false},
		evictionv1.FallbackDeny:   {waiting, false},
		evictionv1.FallbackDelete: {waiting, true},
	} {
		t.Run(string(fallback), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, shared, 1)
			l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds, s.Fallback = 10, fallback })
			l.cordon(true, l.nodes[0])
			pod := l.protected("db", l.nodes[0], func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(77)) }, stays)
			l.pinned(pod)
			l.evictUntilMarked("db")
			begin := time.Now()
			for time.Since(begin) < 4*time.Second {
				l.want(http.StatusTooManyRequests, waiting, l.evict("db"))
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(time.Until(begin.Add(10 * time.Second)))
			status := l.evict("db")
			if !tc.deletes || status != nil { // A call whose answer came too late may have deleted the pod.
				l.want(http.StatusTooManyRequests, tc.says, status)
			}
			got := l.get("db")
			if deleted := !got.DeletionTimestamp.IsZero(); deleted != tc.deletes {
				t.Errorf("deleted: %t, want %t", deleted, tc.deletes)
			}
			if grace := got.DeletionGracePeriodSeconds; tc.deletes && (grace == nil || *grace != 77) {
				t.Errorf("it must have its own grace period, and has %v", grace)
			}
			l.must(l.Client.Delete(l.ctx(), got, client.GracePeriodSeconds(0)))
		})
	}
}

// pinned creates a disruption budget that allows no eviction of a pod.
func (l *lab) pinned(pod *corev1.Pod) {
	l.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: pod.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}
	l.must(l.Client.Create(l.ctx(), pdb))
	l.must(l.Wait(l.ctx(), pdb, func() error {
		if pdb.Status.ObservedGeneration == 0 || pdb.Status.CurrentHealthy != 1 {
			return errNotYet
		}
		return nil
	}))
}

// TestADrainThatIsAborted uncordons the Node: the request is withdrawn.
func TestADrainThatIsAborted(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.Tracking = evictionv1.TrackingNamespace })
	l.cordon(true, l.nodes[0])
	pod := l.protected("db", l.nodes[0])
	l.evictUntilMarked("db")
	l.wantMark(true)
	l.cordon(false, l.nodes[0])
	ctx := l.within(2 * time.Minute)
	l.must(l.Wait(ctx, pod, func() error {
		if _, there := pod.Annotations[operator.RescheduleAnnotation]; there {
			return errNotYet
		}
		return nil
	}))
	l.wantAsked(false, "db")
	l.until(ctx, func() error {
		if len(l.requests()) > 0 {
			return errNotYet
		}
		return nil
	})
	l.wantMark(false)
	// The next drain requests the move again.
	l.cordon(true, l.nodes[0])
	l.evictUntilMarked("db")
}
