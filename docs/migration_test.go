// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder/order"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// migrationRows returns the left and right cells of the table below a heading.
func migrationRows(t *testing.T, page, heading string) map[string]string {
	t.Helper()
	_, section, found := strings.Cut(read(t, page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \|$`).FindAllStringSubmatch(section, -1)[1:] {
		rows[line[1]] = line[2]
	}
	return rows
}

// A migration is one row: what the reference does, as its text says, and what 5-Spot does.
type migration struct {
	// theirs and ours are words that the two cells of the row have: the answers to the same requests.
	theirs, ours []string
	// send sends the requests to 5-Spot, and returns its responses.
	send func(t *testing.T) []string
}

// walk sends the requests of each row of a table to 5-Spot. A row without a migration fails, and so does one without
// a row.
func walk(t *testing.T, rows map[string]string, all map[string]migration) {
	t.Helper()
	for begin := range all {
		if n := len(rowsThatBegin(rows, begin)); n != 1 {
			t.Errorf("%d rows begin with %q", n, begin)
		}
	}
	for left, right := range rows {
		begins := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(begin string) bool { return !strings.HasPrefix(left, begin) })
		if len(begins) != 1 {
			t.Errorf("%d requests are for the row %q", len(begins), left)
			continue
		}
		m := all[begins[0]]
		t.Run(begins[0], func(t *testing.T) {
			for _, word := range m.theirs {
				if !strings.Contains(left, word) {
					t.Errorf("the reference answers %q, and the row says %q", word, left)
				}
			}
			for _, word := range m.ours {
				if !strings.Contains(right, word) {
					t.Errorf("5-Spot answers %q, and the row says %q", word, right)
				}
			}
			if got := m.send(t); !slices.Equal(got, m.ours) {
				t.Errorf("5-Spot answers %q, want %q", got, m.ours)
			}
		})
	}
}

func rowsThatBegin(rows map[string]string, begin string) []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(rows)), func(left string) bool { return !strings.HasPrefix(left, begin) })
}

// answers returns the word if 5-Spot answers as wanted, and else what it answers.
func answers(word, want string, got ...string) string {
	if all := strings.Join(got, ", "); all != want {
		return fmt.Sprintf("%s: %s, want %s", word, all, want)
	}
	return word
}

// named returns a migration of settings, which the reference pages of 5-Spot list.
func named(page string, ours ...string) migration {
	return migration{nil, ours, func(t *testing.T) (found []string) {
		t.Helper()
		text := read(t, "docs/reference/"+page)
		return slices.DeleteFunc(slices.Clone(ours), func(word string) bool { return !strings.Contains(text, strings.TrimSuffix(word, "=external")) })
	}}
}

// noon is when evictions are requested.
var noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// An eviction is requested of a running pod that a policy selects, on a cordoned Node.
type evicted struct {
	client.Client

	node     corev1.Node
	pod      corev1.Pod
	policy   evictionv1.ReschedulePolicySpec
	taints   []string
	clock    *clocktesting.FakePassiveClock
	response eviction.Response
}

// newEvicted makes the objects as change leaves them.
func newEvicted(t *testing.T, change func(*evicted)) *evicted {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, evictionv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	e := &evicted{clock: clocktesting.NewFakePassiveClock(noon), taints: eviction.DrainTaints}
	e.node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	e.pod = corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "cb-0", UID: "one", Labels: map[string]string{"app": "couchbase"}, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))},
		Spec:       corev1.PodSpec{NodeName: "box"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	e.policy = evictionv1.ReschedulePolicySpec{DeadlineSeconds: 14400, Fallback: "Allow", HealthyNode: "Allow", Tracking: "None"}
	e.policy.PodSelector.MatchLabels = map[string]string{"app": "couchbase"}
	e.policy.Request.Annotation = &evictionv1.Annotation{Key: "cao.couchbase.com/reschedule", Value: "true"}
	if change != nil {
		change(e)
	}
	e.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&e.node, &e.pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db"}},
		&evictionv1.ReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "couchbase"}, Spec: e.policy},
	).Build()
	return e
}

// evict returns the status of the HTTP answer, and whether the pod has what its operator looks for then.
func (e *evicted) evict(t *testing.T, dryRun bool) string {
	t.Helper()
	evictor := eviction.Evictor{Live: e.Client, Policies: e.Client, Write: actuate.New(e.Client), Clock: e.clock, Taints: e.taints, NameProtection: eviction.DefaultNameProtection}
	var err error
	if e.response, err = evictor.EvictLive(t.Context(), eviction.Attempt{Pod: client.ObjectKeyFromObject(&e.pod), By: "kubectl", DryRun: dryRun}); err != nil {
		t.Fatal(err)
	}
	answer := map[verdict.Answer]string{verdict.Allow: "201", verdict.Wait: "429", verdict.Gone: "404"}[e.response.Answer]
	live := &corev1.Pod{}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(&e.pod), live); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{live.Annotations, live.Labels} {
		if set["cao.couchbase.com/reschedule"] == "true" {
			return answer + " asked"
		}
	}
	return answer
}

// move has an operator start the pod again under its name on another Node.
func (e *evicted) move(t *testing.T) {
	t.Helper()
	next := e.pod.DeepCopy()
	next.UID, next.ResourceVersion, next.Spec.NodeName, next.CreationTimestamp = "two", "", "other", metav1.NewTime(e.clock.Now())
	next.Annotations = nil
	for _, err := range []error{e.Delete(t.Context(), &e.pod), e.Create(t.Context(), next)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// onHealthy is an eviction from a Node that is not drained.
func onHealthy(answer string, taints ...corev1.Taint) func(*evicted) {
	return func(e *evicted) {
		e.node.Spec.Unschedulable, e.node.Spec.Taints, e.policy.HealthyNode = false, taints, evictionv1.HealthyNode(answer)
	}
}

// TestMigrationFromTheEvictionRescheduleHook sends the requests of each row to the guard.
func TestMigrationFromTheEvictionRescheduleHook(t *testing.T) {
	once := func(t *testing.T, change func(*evicted)) string {
		t.Helper()
		return newEvicted(t, change).evict(t, false)
	}
	custom := corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoExecute}
	asks := []string{"429", "the operator is asked"}
	settings := func(ours ...string) migration { return named("flags.md", ours...) }
	walk(t, migrationRows(t, "docs/operators.md", "If you come from Couchbase's eviction reschedule hook"), map[string]migration{
		"an eviction from a Node that nobody drains": {asks, []string{"201", "healthyNode: Relocate"}, func(t *testing.T) []string {
			t.Helper()
			return []string{once(t, onHealthy("Allow")), answers("healthyNode: Relocate", "429 asked", once(t, onHealthy("Relocate")))}
		}},
		"an eviction from a Node with only a custom taint": {asks, []string{"201", "--drain-taints", "healthyNode: Relocate"}, func(t *testing.T) []string {
			t.Helper()
			named := func(e *evicted) { onHealthy("Allow", custom)(e); e.taints = []string{custom.Key} }
			return []string{
				once(t, onHealthy("Allow", custom)), answers("--drain-taints", "429 asked", once(t, named)),
				answers("healthyNode: Relocate", "429 asked", once(t, onHealthy("Relocate", custom))),
			}
		}},
		"a pod that has not started, has ended, or is being deleted": {asks, []string{"the pod goes"}, func(t *testing.T) []string {
			t.Helper()
			return []string{answers(
				"the pod goes", "201, 201, 201",
				once(t, func(e *evicted) { e.pod.Status.Phase = corev1.PodPending }),
				once(t, func(e *evicted) { e.pod.Status.Phase = corev1.PodSucceeded }),
				once(t, func(e *evicted) {
					e.pod.DeletionTimestamp, e.pod.Finalizers = new(metav1.NewTime(noon)), []string{"example.com/wait"}
				}),
			)}
		}},
		"`POD_LABEL_SELECTOR_KEY`": {[]string{"POD_LABEL_SELECTOR_VALUE"}, []string{"podSelector", "expressions"}, func(t *testing.T) []string {
			t.Helper()
			in := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"couchbase", "mongo"}}
			return []string{
				answers("podSelector", "201", once(t, func(e *evicted) { e.pod.Labels["app"] = "web" })),
				answers("expressions", "429 asked", once(t, func(e *evicted) {
					e.policy.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}
				})),
			}
		}},
		"`RESCHEDULE_ANNOTATION_KEY`": {[]string{"RESCHEDULE_ANNOTATION_VALUE"}, []string{"request.annotation", "request.label"}, func(t *testing.T) []string {
			t.Helper()
			return []string{
				answers("request.annotation", "429 asked", once(t, nil)),
				answers("request.label", "429 asked", once(t, func(e *evicted) {
					e.policy.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "cao.couchbase.com/reschedule", Value: "true"}}
				})),
			}
		}},
		"`TRACK_RESCHEULED_PODS`": {[]string{"so spelt"}, []string{"UID"}, func(t *testing.T) []string {
			t.Helper()
			e := newEvicted(t, nil)
			first := e.evict(t, false)
			e.move(t)
			return []string{answers("UID", "429 asked, 404", first, e.evict(t, false))}
		}},
		"`TRACKING_RESOURCE_TYPE`": {[]string{"couchbasecluster", "namespace"}, []string{"Namespace", "None"}, func(t *testing.T) []string {
			t.Helper()
			mark := func(tracking evictionv1.TrackingType) string {
				e := newEvicted(t, func(e *evicted) { e.policy.Tracking = tracking })
				e.evict(t, false)
				ns := &corev1.Namespace{}
				if err := e.Get(t.Context(), client.ObjectKey{Name: "db"}, ns); err != nil {
					t.Fatal(err)
				}
				return ns.Annotations["reschedule.hook/db.cb-0"]
			}
			return []string{answers("Namespace", "true", mark("Namespace")), answers("None", "", mark("None"))}
		}},
		"`TLS_CERT_FILE`":            settings("--webhook-cert-dir"),
		"listens at `:8443`":         settings("--webhook-port"),
		"path `/eviction`":           settings("--certificates=external"),
		"`/readyz` always says yes":  settings("--health-addr"),
		"environment variables only": settings("flags"),
		"`failurePolicy` `Fail`": {[]string{"all evictions"}, []string{"Ignore", "a label"}, func(t *testing.T) []string {
			t.Helper()
			hook := &admissionv1.ValidatingWebhookConfiguration{}
			if err := yaml.Unmarshal([]byte(read(t, "config/eviction-guard/webhook.yaml")), hook); err != nil {
				t.Fatal(err)
			}
			w := hook.Webhooks[0]
			return []string{string(*w.FailurePolicy), answers("a label", "enabled", w.NamespaceSelector.MatchLabels[evictionv1.GuardedLabel])}
		}},
		"429 and 404 with the same messages": {nil, []string{"the same messages", "a cause", "*would*"}, func(t *testing.T) []string {
			t.Helper()
			e, dry := newEvicted(t, nil), newEvicted(t, nil)
			var said []string
			for range 2 {
				e.evict(t, false)
				said = append(said, e.response.Message)
			}
			cause := fmt.Sprint(e.response.Cause != "")
			e.move(t)
			e.evict(t, false)
			said = append(said, e.response.Message)
			dry.evict(t, true)
			return []string{
				answers("the same messages", "Reschedule annotation added to pod, Pod waiting to be rescheduled, Pod has been rescheduled with the same name", said...),
				answers("a cause", "true", cause), answers("*would*", "Reschedule annotation would be added to pod", dry.response.Message),
			}
		}},
		"a deadline: none": {[]string{"429 for ever"}, []string{"14400", "fallback", "`Deny`"}, func(t *testing.T) []string {
			t.Helper()
			late := func(fallback evictionv1.Fallback) []string {
				e := newEvicted(t, func(e *evicted) { e.policy.Fallback = fallback })
				all := []string{e.evict(t, false)}
				for _, d := range []time.Duration{14399 * time.Second, 2 * time.Second} {
					e.clock.SetTime(e.clock.Now().Add(d))
					all = append(all, e.evict(t, false))
				}
				return all
			}
			allow := late("Allow")
			return []string{
				answers("14400", "429 asked, 429 asked", allow[:2]...), answers("fallback", "201 asked", allow[2]),
				answers("`Deny`", "429 asked, 429 asked, 429 asked", late("Deny")...),
			}
		}},
		"a pod that was moved under its name": {[]string{"404 once"}, []string{"404", "ten minutes"}, func(t *testing.T) []string {
			t.Helper()
			e := newEvicted(t, nil)
			e.evict(t, false)
			e.move(t)
			first := e.evict(t, false)
			e.clock.SetTime(e.clock.Now().Add(10*time.Minute - time.Second))
			second := e.evict(t, false)
			e.clock.SetTime(e.clock.Now().Add(time.Second))
			return []string{first, answers("ten minutes", "404, 201", second, e.evict(t, false))}
		}},
		"500 while the CouchbaseCluster cannot be read": {[]string{"500"}, []string{"a warning", "moved"}, func(t *testing.T) []string {
			t.Helper()
			e := newEvicted(t, func(e *evicted) { e.policy.Tracking = "CouchbaseCluster" })
			answer := e.evict(t, false)
			return []string{answers("a warning", "true", fmt.Sprint(len(e.response.Warnings) > 0)), answers("moved", "429 asked", answer)}
		}},
		"a mark on another object": {[]string{"says that a pod has moved"}, []string{"the UID"}, func(t *testing.T) []string {
			t.Helper()
			e := newEvicted(t, func(e *evicted) { e.policy.Tracking = "Namespace" })
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db", Annotations: map[string]string{"reschedule.hook/db.cb-0": "true"}}}
			if err := e.Update(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
			return []string{answers("the UID", "429 asked", e.evict(t, false))}
		}},
	})
}

// TestMigrationFromNodeDetacher has the plans of 5-Spot answer each row.
func TestMigrationFromNodeDetacher(t *testing.T) {
	balancer := func(ours ...string) migration { return named("loadbalancers.md", ours...) }
	flags := func(ours ...string) migration { return named("flags.md", ours...) }
	planned := func(theirs string, ours string, send func() string) migration {
		return migration{[]string{theirs}, []string{ours}, func(*testing.T) []string { return []string{send()} }}
	}
	tainted := func(key string) plan.Node { return plan.Node{Taints: []plan.Taint{{Key: key}}} }
	const stays = ""
	walk(t, migrationRows(t, "docs/load-balancers.md", "If you come from node-detacher"), map[string]migration{
		"a Deployment in each workload cluster": {nil, []string{"nothing"}, func(t *testing.T) []string {
			t.Helper()
			return []string{answers("nothing", "false", fmt.Sprint(strings.Contains(read(t, "config/reclaim-agent/kustomization.yaml")+read(t, "config/eviction-guard/kustomization.yaml"), "detach")))}
		}},
		"`-enable-aws`":                     balancer("NodeDetach"),
		"`-enable-static-tg-integration`":   balancer("targetGroups", "arns"),
		"`-enable-static-clb-integration`":  balancer("classicELB", "names"),
		"`-enable-alb-ingress-integration`": balancer("targetGroups", "arns"),
		"`-enable-dynamic-clb-integration`": balancer("classicELB", "names"),
		"`-enable-leader-election`":         flags("--leader-elect"),
		"`-sync-period`":                    flags("--sync-period"),
		"`-kubeconfig`":                     flags("--kubeconfig", "--v", "--diagnostics-address"),
		"`-name`":                           flags("--watch-filter", "--namespace"),
		"`-daemonset`":                      balancer("daemonSets"),
		"`-manage-daemonsets`":              balancer("roll"),
		"kind `Attachment`":                 named("nodeattachments.md", "NodeAttachment"),
		"label `alpha.service-controller.kubernetes.io/exclude-balancer`": balancer("label"),
		"annotation `…/managed-by`": {nil, []string{"not read"}, func(t *testing.T) []string {
			t.Helper()
			return []string{answers("not read", "false", fmt.Sprint(strings.Contains(read(t, "exp/api/v1alpha1/names.go")+read(t, "exp/detach/daemonsets.go"), "managed-by")))}
		}},
		"annotation `node-detacher.variant.run/detached`": planned("any value", expv1.NodeDetachAnnotation+`: "true"`, func() string {
			return answers(expv1.NodeDetachAnnotation+`: "true"`, "Annotation, "+stays, string(plan.Node{DetachAnnotation: "true"}.Trigger(nil)), string(plan.Node{DetachAnnotation: "yes"}.Trigger(nil)))
		}),
		"annotation `node-detacher.variant.run/detaching`": planned("of the Node", "the same", func() string {
			return answers("the same", "node-detacher.variant.run/detaching", expv1.NodeDetachingAnnotation)
		}),
		"ordered stop of pods": planned("became unschedulable", "for every Node that leaves", func() string {
			var stopped []string
			for _, n := range []plan.Node{{Unschedulable: true}, tainted(plan.AutoscalerTaint), tainted("dedicated"), {DetachAnnotation: "true"}} {
				if n.StopsPods(nil) {
					stopped = append(stopped, string(n.Trigger(nil)))
				}
			}
			return answers("for every Node that leaves", "Cordoned, Taint "+plan.AutoscalerTaint, stopped...)
		}),
		"annotation `…/disable-eviction`": {nil, []string{"read"}, func(t *testing.T) []string {
			t.Helper()
			return []string{answers("read", "true", fmt.Sprint(strings.Contains(read(t, "exp/detach/podorder/pods.go"), `"node-detacher.variant.run/disable-eviction"`)))}
		}},
		"annotations `…/deletion-priority`": planned("pod-deletion-priority", "a pod without one is left alone", func() string {
			pods := []order.Pod{{Name: "low", UID: "1", Priority: new("5")}, {Name: "none", UID: "2"}, {Name: "high", UID: "3", Priority: new("10")}}
			var stopped []string
			for d := order.Decide(order.Facts{Pods: pods, Now: noon}); len(d.Delete) > 0 && len(stopped) < 3; d = order.Decide(order.Facts{Pods: pods, Now: noon}) {
				stopped = append(stopped, d.Delete[0].Name)
				pods = slices.DeleteFunc(pods, func(p order.Pod) bool { return p.UID == d.Delete[0].UID })
			}
			return answers("a pod without one is left alone", "high, low", stopped...)
		}),
		"its taint on a Node": planned("being detached", "cordons the Node of a machine that leaves", func() string {
			node := plan.Node{Known: true, Exists: true, Ready: true, UID: "1"}
			leaves, asked := node, node
			leaves.Machine, asked.DetachAnnotation = plan.Leaves, "true"
			cordons := func(n plan.Node) string { return fmt.Sprint(plan.Decide(n, plan.Record{}, true, nil).Cordon) }
			return answers("cordons the Node of a machine that leaves", "true, false", cordons(leaves), cordons(asked))
		}),
		"condition `NodeBeingDetached`": planned("of the Node", "the NodeAttachment", func() string {
			return answers("the NodeAttachment", "NodeBeingDetached", expv1.NodeBeingDetachedCondition)
		}),
		"any taint detaches a Node": planned("any taint", "those named", func() string {
			return answers("those named", "Taint ToBeDeletedByClusterAutoscaler, Taint karpenter.sh/disrupted, "+stays,
				string(tainted(plan.AutoscalerTaint).Trigger(nil)), string(tainted("karpenter.sh/disrupted").Trigger([]string{"karpenter.sh/disrupted"})), string(tainted("dedicated").Trigger(nil)))
		}),
	})
}
