// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/apiclock"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// departure is a world whose first Node's machine leaves. The test plays the operators.
type departure struct {
	*world

	d leaving.Departing
	// reads intercepts reads of the workload cluster. gate controls writes to it.
	reads interceptor.Funcs
	gate  *actuate.Gate
	cache clustercache.ClusterCache
	step  *eviction.Step
	woken chan struct{}
}

func newDeparture(t *testing.T, nodes int, change func(*evictionv1.ReschedulePolicySpec)) *departure {
	t.Helper()
	d := &departure{world: newWorld(t, nodes, change), gate: new(actuate.Gate)}
	d.d = leaving.Departing{
		Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: "box-machine", UID: "m1"}, Spec: clusterv1.MachineSpec{ClusterName: "lab"}},
		Node:    d.nodes[0].Name, Phase: hooksv1.BeforeDrain, Began: began, Grace: 10 * time.Minute,
	}
	return d
}

// anew restarts the manager, with an empty memory.
func (d *departure) anew() {
	d.restart(d.reads)
	gated := testenv.Gated(d.gate.Transport, testenv.Serialized(d.evictor.Live.(client.Client)))
	cache := d.cache
	if cache == nil {
		cache = clustercache.NewFakeClusterCache(gated, d.d.Cluster())
	}
	desk, woken := leaving.New(d.clock), make(chan struct{}, 10)
	desk.Start(d.Context(), func(types.NamespacedName) { woken <- struct{}{} })
	d.woken = woken
	d.step = &eviction.Step{Clock: d.clock, Actuate: actuate.NewGated(d.gate, gated), ClusterCache: cache, Calls: desk, By: "manager"}
}

// look calls the step once, as a reconciler does.
func (d *departure) look() leaving.Verdict {
	d.Helper()
	v, err := d.step.Check(d.Context(), d.d, d.clock.Now())
	d.Must(err)
	return v
}

// turn calls the step some time later, and returns its result after its background call.
func (d *departure) turn() leaving.Verdict {
	d.Helper()
	if d.step == nil {
		d.anew()
	}
	d.pass(5 * time.Second)
	v := d.look()
	if !v.Holds {
		return v
	}
	select {
	case <-d.woken:
	case <-time.After(time.Minute):
		d.Fatalf("no answer: %+v", v)
	}
	return d.look()
}

// wants compares the result of the step. A text about pods begins with their namespace, and ends with the deadline
// while the machine waits.
func (d *departure) wants(got leaving.Verdict, holds, missed bool, note string) {
	d.Helper()
	if holds {
		until := began.Add(cmp.Or(d.d.Grace/2, 4*time.Hour))
		note += fmt.Sprintf(" (until %s at the latest)", until.Format(time.RFC3339))
	}
	if got.Holds != holds || got.Missed != missed || strings.ReplaceAll(got.Note, d.ns+"/", "") != note {
		d.Errorf("got %+v, want holds %t, missed %t, %q", got, holds, missed, note)
	}
	if (holds || missed) && got.Reason != v1alpha1.WaitingForOperatorsReason {
		d.Errorf("the reason is %q", got.Reason)
	}
}

func (d *departure) cordoned() bool {
	d.Helper()
	d.Read(d.nodes[0])
	return d.nodes[0].Spec.Unschedulable
}

const (
	asked    = "db-0: ReschedulePolicy db: its operator has the request to move it"
	tooLate  = "db-0: ReschedulePolicy db: its operator did not move it within 1m0s"
	halfOver = "operators did not move all pods within 5m0s, half of the machine's gracefulShutdownTimeout: "
)

func minute(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 60 }

// TestAMachineLeavesOnceItsPodsAreMoved fails every write, and loses every reply, once each, and restarts the manager
// each time.
func TestAMachineLeavesOnceItsPodsAreMoved(t *testing.T) {
	for name, becomes := range map[string]string{"NewName": "db-1", "SameName": "db-0"} {
		t.Run(name, func(t *testing.T) {
			testenv.CrashPoints(t, 4, func(t *testing.T, fail testenv.Fail) (seen []string, writes int) {
				t.Helper()
				d := newDeparture(t, 2, nil)
				d.Fail = fail
				p := d.pod("db-0", 0)
				for range 20 {
					d.anew()
					v := d.turn()
					note := strings.ReplaceAll(v.Note, d.ns+"/", "")
					switch {
					case !v.Holds:
						moved := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: becomes}}
						if !d.Read(moved) || d.isMarked(moved) || !moved.DeletionTimestamp.IsZero() {
							t.Errorf("the pod that took its place: %+v", moved.ObjectMeta)
						}
						return append(seen, fmt.Sprintf("cordoned %t, missed %t, %s", d.cordoned(), v.Missed, note)), len(d.Writes)
					case strings.HasPrefix(note, asked):
						seen = append(seen, note)
						if r := d.requests(); len(r) != 1 || r[0].Spec.Requester != "manager" || r[0].Spec.Intent != evictionv1.IntentEviction {
							t.Errorf("got %+v", r)
						}
						d.leave(p)
						d.pod(becomes, 1)
					case !strings.Contains(note, "reply lost"):
						t.Errorf("got %+v", v)
					}
				}
				t.Fatal("does not end")
				return nil, 0
			})
		})
	}
}

// TestRequestIsNotRepeated while the operator moves the pod, and the text does not change.
func TestRequestIsNotRepeated(t *testing.T) {
	d := newDeparture(t, 1, nil)
	d.pod("db-0", 0)
	if d.anew(); d.look().Reason != v1alpha1.WaitingForResponseReason {
		t.Error("nobody knows yet for whom it waits")
	}
	<-d.woken
	for range 3 {
		v := d.turn()
		d.wants(v, true, false, asked)
		if !v.Again.Equal(d.clock.Now().Add(5 * time.Second)) {
			t.Errorf("it is looked at again at %v", v.Again)
		}
	}
	d.wantWrites("patch Node", "create RescheduleRequest", "patch Pod", "patch RescheduleRequest")
	d.Must(d.Client.Delete(t.Context(), d.policy)) // No policy selects the pod any more.
	d.wants(d.turn(), false, false, "")
}

// TestASilentOperator has an operator that does nothing.
func TestASilentOperator(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		fallback evictionv1.Fallback
		// holds reports that the machine waits after the deadline, deleted that the guard deletes the pod.
		holds, deleted bool
		note           string
	}{
		"Allow":  {"The drain evicts it.", evictionv1.FallbackAllow, false, false, tooLate},
		"Delete": {"It ends on its own, and the drain waits for it.", evictionv1.FallbackDelete, false, true, tooLate + ", and it is deleted"},
		"Deny":   {"It is waited for as long as there is time.", evictionv1.FallbackDeny, true, false, tooLate},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeparture(t, 1, func(s *evictionv1.ReschedulePolicySpec) { minute(s); s.Fallback = tc.fallback })
			p := d.pod("db-0", 0)
			d.wants(d.turn(), true, false, asked)
			d.pass(50 * time.Second)
			d.wants(d.turn(), true, false, asked)
			v := d.turn()
			d.wants(v, tc.holds, !tc.holds, tc.note)
			if d.Read(p); p.DeletionTimestamp.IsZero() == tc.deleted {
				t.Errorf("%s: deleted %v", tc.reason, p.DeletionTimestamp)
			}
			if tc.holds {
				d.clock.SetTime(began.Add(5 * time.Minute))
				d.wants(d.look(), false, true, halfOver+tc.note)
			}
		})
	}
}

// TestHowLongAMachineWaits has an operator that does nothing.
func TestHowLongAMachineWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		grace  time.Duration
		want   time.Duration
		note   string
	}{
		"Half":    {"The drain needs time, too.", 10 * time.Minute, 5 * time.Minute, halfOver + asked},
		"NoGrace": {"It is not for ever.", 0, 4 * time.Hour, "operators did not move all pods within 4h0m0s: " + asked},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeparture(t, 1, func(s *evictionv1.ReschedulePolicySpec) { s.DeadlineSeconds = 86400 })
			d.d.Grace = tc.grace
			d.pod("db-0", 0)
			d.turn()
			d.clock.SetTime(began.Add(tc.want - 10*time.Second))
			d.wants(d.turn(), true, false, asked)
			d.clock.SetTime(began.Add(tc.want))
			d.wants(d.look(), false, true, tc.note)
			d.anew() // A manager that starts late requests the move once, and does not wait.
			d.pass(time.Hour)
			if v := d.look(); !v.Holds {
				t.Errorf("%s: nobody was asked: %+v", tc.reason, v)
			}
			<-d.woken
			d.pass(10 * time.Second)
			d.wants(d.look(), false, true, tc.note)
		})
	}
}

// TestOneMoveAfterTheOther has a policy with maxConcurrent 1.
func TestOneMoveAfterTheOther(t *testing.T) {
	d := newDeparture(t, 2, func(s *evictionv1.ReschedulePolicySpec) { s.MaxConcurrent = 1 })
	pods := []*corev1.Pod{d.pod("db-0", 0), d.pod("db-1", 0)}
	const turnOf = ": ReschedulePolicy db: its operator is moving as many other pods as the policy allows"
	for left := len(pods); left > 0; left-- {
		v := d.turn()
		for range 10 {
			if v = d.turn(); strings.Contains(v.Note, "has the request") {
				break
			}
		}
		if n := strings.Count(v.Note, "has the request"); n != 1 || strings.Count(v.Note, turnOf) != left-1 || !v.Holds {
			t.Fatalf("with %d left: %+v", left, v)
		}
		i := slices.IndexFunc(pods, d.isMarked)
		d.leave(pods[i])
		pods = slices.Delete(pods, i, i+1)
	}
	d.wants(d.turn(), false, false, "")
}

// TestPodThatStartsLaterIsFound has a pod that starts while other steps hold the Machine. The step finds it, and waits
// for it.
func TestPodThatStartsLaterIsFound(t *testing.T) {
	d := newDeparture(t, 1, nil)
	d.wants(d.turn(), false, false, "")
	if !d.cordoned() {
		t.Error("others may come")
	}
	late := d.pod("db-0", 0)
	d.pass(14 * time.Second)
	if v := d.look(); v.Holds || !v.Again.Equal(d.clock.Now().Add(time.Second)) {
		t.Errorf("got %+v", v)
	}
	d.pass(time.Second)
	d.wants(d.look(), false, false, "")
	select {
	case <-d.woken:
	case <-time.After(time.Minute):
		t.Fatal("nobody looks once more")
	}
	d.wants(d.look(), true, false, asked)
	d.leave(late)
	d.wants(d.turn(), false, false, "")
}

// TestUnselectedPodsDoNotHold, and the Node is cordoned, so that no pod comes later.
func TestUnselectedPodsDoNotHold(t *testing.T) {
	d := newDeparture(t, 2, nil)
	d.pod("elsewhere", 1)
	plain := d.pod("plain", 0)
	d.Edit(plain, func() { plain.Labels["app"] = "web" })
	pending, done := d.pod("pending", 0), d.pod("done", 0)
	pending.Status.Phase, done.Status.Phase = corev1.PodPending, corev1.PodSucceeded
	d.Must(d.Client.Status().Update(t.Context(), pending))
	d.Must(d.Client.Status().Update(t.Context(), done))
	d.Must(d.Client.Delete(t.Context(), d.pod("going", 0)))
	static := d.pod("like-static", 0).DeepCopy()
	d.leave(static)
	static.ObjectMeta = metav1.ObjectMeta{Namespace: d.ns, Name: "static", Labels: static.Labels, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}}
	d.Create(static)
	static.Status.Phase = corev1.PodRunning
	d.Must(d.Client.Status().Update(t.Context(), static))
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: "ds", UID: "u"}}
	owned := d.pod("of-daemonset", 0)
	d.Edit(owned, func() {
		owned.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	})
	d.wants(d.turn(), false, false, "")
	d.d.Machine.UID, d.d.Node = "m2", "no-such-node"
	d.wants(d.turn(), false, false, "")
	for i, change := range []func(){func() { d.d.Node = "" }, func() { d.d.Node, d.d.Phase = d.nodes[0].Name, hooksv1.BeforeTermination }} {
		d.d.Machine.UID = types.UID(fmt.Sprint("m", 3+i))
		if change(); d.turn() != (leaving.Verdict{}) {
			t.Errorf("%+v is waited for", d.d)
		}
	}
	d.wantWrites("patch Node")
}

// TestConcernsMachinesWithNode checks that a Machine without a Node does not wait.
func TestConcernsMachinesWithNode(t *testing.T) {
	m := &clusterv1.Machine{}
	for _, want := range []bool{false, true} {
		if got, err := (&eviction.Step{}).Concerns(t.Context(), m); got != want || err != nil {
			t.Errorf("got %t, %v, want %t", got, err, want)
		}
		m.Status.NodeRef.Name = "box"
	}
}

// TestAPolicyThatSelectsNothingIsTold as a note, and the other policies apply.
func TestAPolicyThatSelectsNothingIsTold(t *testing.T) {
	d := newDeparture(t, 1, nil)
	bad := d.policy.DeepCopy()
	bad.ObjectMeta = metav1.ObjectMeta{Namespace: d.ns, Name: "bad"}
	bad.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a b", Operator: metav1.LabelSelectorOpExists}}}
	d.Create(bad)
	p := d.pod("db-0", 0)
	d.pod("db-1", 0)
	v := d.turn()
	if !v.Holds || strings.Count(v.Note, "ReschedulePolicy bad is ignored: spec.podSelector: ") != 1 || strings.Count(v.Note, "has the request") != 2 {
		t.Errorf("got %+v", v)
	}
	d.leave(p)
	d.leave(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: "db-1", UID: d.requestOf("db-1")}})
	if v := d.turn(); v.Holds || v.Missed {
		t.Errorf("got %+v", v)
	}
}

func (d *departure) requestOf(pod string) types.UID {
	for _, r := range d.requests() {
		if r.Spec.Pod.Name == pod {
			return r.Spec.Pod.UID
		}
	}
	return ""
}

// TestFailedReadIsRetried, and no move is requested meanwhile.
func TestFailedReadIsRetried(t *testing.T) {
	is := func(kind string, obj any) bool { return strings.HasSuffix(fmt.Sprintf("%T", obj), "."+kind) }
	for kind, written := range map[string][]string{"ReschedulePolicyList": nil, "ClusterReschedulePolicyList": nil, "Node": nil, "PodList": {"patch Node"}} {
		t.Run(kind, func(t *testing.T) {
			d := newDeparture(t, 1, nil)
			d.pod("db-0", 0)
			down, errDown := true, errors.New("connection refused")
			d.reads.List = func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				if down && is(kind, list) {
					return errDown
				}
				return nil
			}
			d.reads.Get = func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
				if down && is(kind, obj) {
					return errDown
				}
				return nil
			}
			if v := d.turn(); !v.Holds || v.Missed || !strings.Contains(v.Note, ": connection refused (until ") {
				t.Errorf("got %+v", v)
			}
			d.wantWrites(written...)
			down = false
			d.wants(d.turn(), true, false, asked)
		})
	}
}

// TestMissingKindsDoNotHold, whichever error the API server returns for a kind that it does not serve.
func TestMissingKindsDoNotHold(t *testing.T) {
	notServed := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{}, "", "", 0, true)
	for name, gone := range map[string]error{"NoMatch": &meta.NoKindMatchError{}, "NotServed": notServed} {
		t.Run(name, func(t *testing.T) {
			d, reads := newDeparture(t, 1, nil), 0
			d.pod("db-0", 0)
			d.reads.List = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				reads++
				return gone
			}
			d.reads.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				reads++
				return nil
			}
			d.wants(d.turn(), false, false, "")
			if reads != 1 || len(d.Writes) > 0 {
				t.Errorf("%d reads, written %v", reads, d.Writes)
			}
		})
	}
}

// TestAClusterWithOneOfTheKinds has a cluster in which one kind was deleted. The policies of the other kind apply.
func TestAClusterWithOneOfTheKinds(t *testing.T) {
	d := newDeparture(t, 1, nil)
	d.pod("db-0", 0)
	d.reads.List = func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
		if _, all := list.(*evictionv1.ClusterReschedulePolicyList); all {
			return &meta.NoKindMatchError{}
		}
		return nil
	}
	d.wants(d.turn(), true, false, asked)
}

// TestMissingKindsCostOneCall counts the calls to an API server that never had the kinds, or that lost them.
func TestMissingKindsCostOneCall(t *testing.T) {
	d, calls := newDeparture(t, 1, nil), atomic.Int32{}
	config := rest.CopyConfig(server.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { calls.Add(1); return next.RoundTrip(r) })
	})
	fresh := func() {
		c, err := client.NewWithWatch(config, client.Options{Scheme: d.Client.Scheme()})
		d.Must(err)
		d.Must(c.Get(t.Context(), client.ObjectKeyFromObject(d.nodes[0]), d.nodes[0])) // It is in use already.
		d.cache = clustercache.NewFakeClusterCache(c, d.d.Cluster())
		d.anew()
	}
	look := func(name string) {
		t.Helper()
		d.d.Machine.UID = types.UID(name)
		calls.Store(0)
		d.wants(d.turn(), false, false, "")
		if n := calls.Load(); n != 1 {
			t.Errorf("%s: %d calls", name, n)
		}
	}
	fresh()
	d.wants(d.turn(), false, false, "") // The client knows the kinds, and there is no pod.
	crds := envtest.CRDInstallOptions{MaxTime: testenv.StartTimeout, Paths: []string{filepath.Join("..", "..", "config", "eviction-guard", "crd")}}
	t.Cleanup(func() {
		if _, err := envtest.InstallCRDs(server.Config, crds); err != nil {
			t.Error(err)
		}
	})
	d.Must(envtest.UninstallCRDs(server.Config, crds))
	gone := func() bool {
		return actuate.Gone(d.Client.List(t.Context(), &evictionv1.RescheduleRequestList{})) &&
			actuate.Gone(d.Client.List(t.Context(), &evictionv1.ReschedulePolicyList{})) && actuate.Gone(d.Client.List(t.Context(), &evictionv1.ClusterReschedulePolicyList{}))
	}
	for begun := time.Now(); !gone(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the kinds stay")
		}
	}
	look("lost")
	time.Sleep(time.Second) // Discovery is a moment late.
	fresh()
	look("never had")
	look("again")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAClusterThatIsNotConnectedIsTriedAgain(t *testing.T) {
	d := newDeparture(t, 1, nil)
	d.cache = clustercache.NewFakeEmptyClusterCache()
	if v := d.turn(); !v.Holds || !strings.Contains(v.Note, "connection to the workload cluster is down") {
		t.Errorf("got %+v", v)
	}
}

// TestNoRequestWhilePaused checks a pause, and a manager with --dry-run.
func TestNoRequestWhilePaused(t *testing.T) {
	for name, tc := range map[string]struct {
		paused, dryRun, cordoned bool
	}{
		"Paused": {paused: true}, "DryRun": {dryRun: true}, "PausedCordoned": {paused: true, cordoned: true},
	} {
		t.Run(name, func(t *testing.T) {
			d, out := newDeparture(t, 1, nil), &bytes.Buffer{}
			d.gate = &actuate.Gate{Paused: tc.paused, DryRun: tc.dryRun, Log: audit.New(out)}
			p := d.pod("db-0", 0)
			d.drain(0, tc.cordoned)
			if v := d.turn(); !v.Holds {
				t.Errorf("got %+v", v)
			}
			if d.isMarked(p) || d.cordoned() != tc.cordoned || len(d.requests()) > 0 {
				t.Errorf("written %v", d.Writes)
			}
			d.wantWrites()
			if text := out.String(); !strings.Contains(text, `"kind":"NodePatch"`) || !strings.Contains(text, `"reason":"MovePods"`) {
				t.Errorf("told %s", text)
			}
		})
	}
}

// TestWritesAreAudited checks that the audit log has each write once.
func TestWritesAreAudited(t *testing.T) {
	d, out := newDeparture(t, 1, nil), &bytes.Buffer{}
	d.gate = &actuate.Gate{Log: audit.New(out)}
	d.pod("db-0", 0)
	for range 3 {
		d.turn()
	}
	var told []string
	for line := range strings.Lines(out.String()) {
		told = append(told, fmt.Sprint(strings.Contains(line, `"reason":"MovePods"`) && strings.Contains(line, `"outcome":"success"`) && strings.Contains(line, `"machine":"`+d.ns+`/box-machine"`)))
	}
	if diff := gocmp.Diff([]string{"true", "true", "true", "true"}, told); diff != "" {
		t.Errorf("told %s: %s", out, diff)
	}
}

// TestANodeThatDoesNotAnswerIsNotWaitedFor, but the moves of its pods are requested.
func TestANodeThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	d := newDeparture(t, 1, nil)
	p := d.pod("db-0", 0)
	d.nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	d.Must(d.Client.Status().Update(t.Context(), d.nodes[0]))
	d.wants(d.turn(), false, true, "the Node does not respond, so the Machine does not wait for its pods; "+asked)
	if !d.isMarked(p) {
		t.Error("its operator was not asked")
	}
}

// TestANodeIsCordonedAgain uncordons the Node while its machine leaves. The step must not treat the pod as one on a
// healthy Node.
func TestANodeIsCordonedAgain(t *testing.T) {
	d := newDeparture(t, 1, nil)
	d.pod("db-0", 0)
	d.wants(d.turn(), true, false, asked)
	d.drain(0, false)
	d.wants(d.turn(), true, false, asked)
	if !d.cordoned() {
		t.Error("pods may come to it")
	}
	// A person uncordons the Node after each cordon, before the next read.
	reads := 0
	d.reads.Get = func(ctx context.Context, c client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
		if _, ok := obj.(*corev1.Pod); !ok {
			return nil
		}
		reads++
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.d.Node}}
		return c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`)))
	}
	d.anew()
	for range 2 {
		d.wants(d.turn(), true, false, "db-0: ReschedulePolicy db: another client uncordoned its Node: 5-Spot cordons it again")
	}
	if reads == 0 {
		t.Error("the test shows nothing")
	}
}

// TestTerminatingNamespaceDoesNotHold, although no object can be created in it.
func TestTerminatingNamespaceDoesNotHold(t *testing.T) {
	d := newDeparture(t, 1, nil)
	p := d.pod("db-0", 0)
	d.Must(d.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.ns}}))
	d.wants(d.turn(), false, false, "")
	if d.isMarked(p) {
		t.Error("an operator is asked for what goes")
	}
}

// TestAConflictIsTriedAgain, and no move is requested before the Node is cordoned.
func TestAConflictIsTriedAgain(t *testing.T) {
	d := newDeparture(t, 1, nil)
	p := d.pod("db-0", 0)
	d.Fail = func(n int) (before, after error) {
		if n == 0 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, d.d.Node, nil), nil
		}
		return nil, nil
	}
	if v := d.turn(); !v.Holds || !strings.HasPrefix(v.Note, "cordoning Node: ") || d.isMarked(p) {
		t.Errorf("got %+v", v)
	}
	d.wants(d.turn(), true, false, asked)
}

// TestNoPodIsMovedWhileTheClockIsSuspect sets the manager's clock ahead, beyond an operator's deadline to move a pod. The
// policy deletes a pod after its deadline.
func TestNoPodIsMovedWhileTheClockIsSuspect(t *testing.T) {
	d := newDeparture(t, 1, func(s *evictionv1.ReschedulePolicySpec) { minute(s); s.Fallback = evictionv1.FallbackDelete })
	p := d.pod("db-0", 0)
	d.wants(d.turn(), true, false, asked)
	d.step.APIClock = apiclock.New(d.clock)
	right := d.clock.Now()
	d.clock.SetTime(right.Add(2 * time.Minute))
	testenv.SampleClock(t.Context(), t, d.step.APIClock.Transport, right)
	d.wants(d.turn(), true, false, "no pod is moved while the manager's clock may be wrong")
	if d.Read(p); !p.DeletionTimestamp.IsZero() {
		t.Error("the pod is deleted by a clock that is wrong")
	}
}
