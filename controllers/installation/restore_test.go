// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// object returns the first installed object of a kind as the API server has it.
func (w *world) object(kind string) *unstructured.Unstructured {
	w.Helper()
	for _, u := range slices.Concat(w.manifests, w.guard) {
		if u.GetKind() == kind {
			u = u.DeepCopy()
			if !w.Read(u) {
				w.Fatalf("no %s", kind)
			}
			return u
		}
	}
	w.Fatalf("no %s in the manifests", kind)
	return nil
}

// wanted is the part of an object that is installed.
func wanted(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	annotations := u.GetAnnotations()
	delete(annotations, appsv1.DeprecatedTemplateGeneration)
	metadata := map[string]any{"labels": u.GetLabels(), "annotations": annotations}
	delete(u.Object, "status")
	u.Object["metadata"] = metadata
	return u.Object
}

// kubectl changes an object by JSON patch, as another program.
func (w *world) kubectl(u *unstructured.Unstructured, patch string) {
	w.Helper()
	w.Must(w.Client.Patch(w.Context(), u, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("kubectl-set")))
}

// TestEveryChangeIsRestored covers all kinds of changes that were, or could have been, left in place.
func TestEveryChangeIsRestored(t *testing.T) {
	const container = "/spec/template/spec/containers/0"
	cases := map[string]struct {
		kind, patch string
		// names is a field that the Event must name.
		names string
	}{
		"Environment": {
			"DaemonSet", `[{"op":"replace","path":"` + container + `/env","value":[{"name":"NODE_NAME","value":"victim"},{"name":"SKIP_HOST_ID_CHECK","value":"true"}]}]`,
			"spec.template.spec.containers[0].env[0].value, spec.template.spec.containers[0].env[0].valueFrom, spec.template.spec.containers[0].env[1].name, 1 more differed",
		},
		"ExtraContainer":  {"DaemonSet", `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"evil","image":"evil"}}]`, "spec.template.spec.containers[1]"},
		"InitContainer":   {"DaemonSet", `[{"op":"add","path":"/spec/template/spec/initContainers","value":[{"name":"evil","image":"evil"}]}]`, "spec.template.spec.initContainers"},
		"Volume":          {"DaemonSet", `[{"op":"add","path":"/spec/template/spec/volumes/-","value":{"name":"root","hostPath":{"path":"/"}}}]`, "spec.template.spec.volumes[2]"},
		"SecurityContext": {"DaemonSet", `[{"op":"replace","path":"` + container + `/securityContext","value":{"privileged":true}}]`, "spec.template.spec.containers[0].securityContext"},
		"Command":         {"DaemonSet", `[{"op":"replace","path":"` + container + `/command","value":["sleep"]}]`, "spec.template.spec.containers[0].command[0]"},
		"Toleration":      {"DaemonSet", `[{"op":"remove","path":"/spec/template/spec/tolerations"}]`, "spec.template.spec.tolerations"},
		"RestartedPods":   {"DaemonSet", `[{"op":"add","path":"/spec/template/metadata/annotations/a","value":"b"}]`, "spec.template.metadata.annotations.a"},
		"OwnLabel":        {"DaemonSet", `[{"op":"remove","path":"/metadata/labels/app.kubernetes.io~1managed-by"}]`, "metadata.labels[app.kubernetes.io/managed-by]"},
		"OwnAnnotations":  {"DaemonSet", `[{"op":"remove","path":"/metadata/annotations/cluster.x-k8s.io~1cluster-name"},{"op":"remove","path":"/metadata/annotations/cluster.x-k8s.io~1cluster-namespace"}]`, "metadata.annotations[cluster.x-k8s.io/cluster-name]"},
		"Policy":          {"ValidatingAdmissionPolicy", `[{"op":"add","path":"/spec/matchConditions","value":[{"name":"never","expression":"false"}]}]`, "spec.matchConditions"},
		"PolicyRule":      {"ValidatingAdmissionPolicy", `[{"op":"remove","path":"/spec/validations/0"}]`, "spec.validations[0]"},
		"Binding":         {"ValidatingAdmissionPolicyBinding", `[{"op":"replace","path":"/spec/validationActions","value":["Audit"]}]`, "spec.validationActions[0]"},
		"BindingScope":    {"ValidatingAdmissionPolicyBinding", `[{"op":"add","path":"/spec/matchResources","value":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}]`, "spec.matchResources"},
		"Rule":            {"ClusterRole", `[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}}]`, "rules[1]"},
		"Aggregated":      {"ClusterRole", `[{"op":"add","path":"/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view","value":"true"}]`, "metadata.labels[rbac.authorization.k8s.io/aggregate-to-view]"},
		"Subject":         {"ClusterRoleBinding", `[{"op":"add","path":"/subjects/-","value":{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"eve"}}]`, "subjects[1]"},
		"NoToken":         {"ServiceAccount", `[{"op":"add","path":"/automountServiceAccountToken","value":false}]`, "automountServiceAccountToken"},
		"PodSecurity":     {"Namespace", `[{"op":"replace","path":"/metadata/labels/pod-security.kubernetes.io~1enforce","value":"restricted"}]`, "metadata.labels[pod-security.kubernetes.io/enforce]"},
		"PodSecurityOf":   {"Namespace", `[{"op":"add","path":"/metadata/labels/pod-security.kubernetes.io~1enforce-version","value":"v1.20"}]`, "metadata.labels[pod-security.kubernetes.io/enforce-version]"},
	}
	w := newWorld(t, "java")
	w.settle()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			u := w.object(tc.kind)
			before := wanted(u)
			w.kubectl(u, tc.patch)
			w.want("it is written once", w.settle(), []string{"update " + tc.kind})
			if diff := cmp.Diff(before, wanted(w.object(tc.kind))); diff != "" {
				t.Errorf("-before, +after:\n%s", diff)
			}
			note := w.note()
			if !strings.HasPrefix(note, "Warning InstallationRestored "+tc.kind+" ") || !strings.Contains(note, tc.names) ||
				!strings.Contains(tc.patch, `"op":"remove"`) && !strings.HasSuffix(note, "last writer: kubectl-set") {
				t.Errorf("event %q", note)
			}
			if len(w.recorder.Events) > 0 {
				t.Errorf("one Event is enough: %q", w.note())
			}
			w.restart() // Each change has the whole burst.
			w.settle()
		})
	}
}

// TestWhatOthersMaySetStays covers additions of cluster administrators and cloud controllers.
func TestWhatOthersMaySetStays(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	for kind, patch := range map[string]string{
		"ServiceAccount": `[{"op":"add","path":"/imagePullSecrets","value":[{"name":"registry"}]},{"op":"add","path":"/metadata/annotations/a","value":"b"}]`,
		"Namespace":      `[{"op":"add","path":"/metadata/labels/team","value":"x"}]`,
		"DaemonSet":      `[{"op":"add","path":"/metadata/finalizers","value":["example.com/x"]}]`,
	} {
		u := w.object(kind)
		w.kubectl(u, patch)
		w.settle()
		w.restart()
		w.settle()
		if got := w.object(kind); got.GetResourceVersion() != u.GetResourceVersion() {
			t.Errorf("%s was changed:\n%s", kind, cmp.Diff(u.Object, got.Object))
		}
	}
	w.kubectl(w.object("DaemonSet"), `[{"op":"remove","path":"/metadata/finalizers"}]`)
	if len(w.recorder.Events) > 0 {
		t.Errorf("nothing was restored: %q", w.note())
	}
}

// TestAnImmutableFieldIsRestored binds the agent to another role, in an object that looks like 5-Spot's.
func TestAnImmutableFieldIsRestored(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	u := w.object("ClusterRoleBinding")
	before := wanted(u)
	w.Must(w.Client.Delete(t.Context(), u.DeepCopy()))
	u.SetUID("")
	u.SetResourceVersion("")
	w.Must(unstructured.SetNestedField(u.Object, "cluster-admin", "roleRef", "name"))
	w.Must(w.Client.Create(t.Context(), u, client.FieldOwner("kubectl-create")))
	w.want("it is made again", w.settle(), []string{
		"update ClusterRoleBinding", "create ClusterRoleBinding", "delete ClusterRoleBinding", "create ClusterRoleBinding",
	})
	if diff := cmp.Diff(before, wanted(w.object("ClusterRoleBinding"))); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}
	if note := w.note(); !strings.Contains(note, "ClusterRoleBinding fivespot-reclaim-agent restored to what 5-Spot installs: roleRef.name differed; last writer: kubectl-create") {
		t.Errorf("event %q", note)
	}
}

// TestAFinalizerPreventsNoAnswer sets a finalizer on an object that has to be deleted and created.
func TestAFinalizerPreventsNoAnswer(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	u := w.object("ClusterRoleBinding")
	w.Must(w.Client.Delete(t.Context(), u.DeepCopy()))
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetFinalizers([]string{"example.com/x"})
	w.Must(unstructured.SetNestedField(u.Object, "cluster-admin", "roleRef", "name"))
	w.Must(w.Client.Create(t.Context(), u))
	w.Writes = nil
	err := w.reconcile()
	if err == nil || !strings.Contains(err.Error(), "remove its finalizers (example.com/x)") || slices.Contains(w.Writes, "delete ClusterRoleBinding") {
		t.Errorf("%v, sent %v", err, w.Writes)
	}
	w.kubectl(w.object("ClusterRoleBinding"), `[{"op":"remove","path":"/metadata/finalizers"}]`)
	w.settle()
	if role, _, _ := unstructured.NestedString(w.object("ClusterRoleBinding").Object, "roleRef", "name"); role == "cluster-admin" {
		t.Error("the binding is not restored")
	}
}

// TestARefusedObjectIsNotDeleted uses manifests that the API server rejects: the running agent stays.
func TestARefusedObjectIsNotDeleted(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	last := len(w.manifests) - 1
	w.manifests[last] = w.manifests[last].DeepCopy()
	w.Must(unstructured.SetNestedField(w.manifests[last].Object, "!", "spec", "template", "spec", "serviceAccountName"))
	w.restart()
	w.Writes = nil
	if err := w.reconcile(); err == nil || slices.Contains(w.Writes, "delete DaemonSet") {
		t.Errorf("%v, sent %v", err, w.Writes)
	}
	w.object("DaemonSet")
}

func TestADeletedObjectIsReported(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.Must(w.Client.Delete(t.Context(), w.daemonSet()))
	w.settle()
	if note := w.note(); note != "Warning InstallationRestored DaemonSet reclaim-agent restored to what 5-Spot installs: it was deleted" {
		t.Errorf("event %q", note)
	}
}

// TestADeletionBy5SpotIsNotReported breaks the connection in the middle of a removal. Then a ScheduledMachine needs the
// agent again.
func TestADeletionBy5SpotIsNotReported(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "delete ServiceAccount" {
			return clustercache.ErrClusterNotConnected, nil
		}
		return nil, nil
	}
	w.Must(w.reconcile())
	w.Fail = nil
	if !slices.Contains(w.Writes, "delete DaemonSet") {
		t.Fatalf("sent %v", w.Writes)
	}
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java"} })
	w.settle()
	w.object("DaemonSet")
	if note := w.note(); note != "" {
		t.Errorf("event %q", note)
	}
}

// TestAnUpgradeIsNoAttack covers a manager with another image, and a label of another program.
func TestAnUpgradeIsNoAttack(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.kubectl(w.object("DaemonSet"), `[{"op":"add","path":"/metadata/labels/team","value":"x"}]`)
	last := len(w.manifests) - 1
	w.manifests[last] = w.manifests[last].DeepCopy()
	containers, _, err := unstructured.NestedSlice(w.manifests[last].Object, "spec", "template", "spec", "containers")
	w.Must(err)
	containers[0].(map[string]any)["image"] = "agent:newer"
	w.Must(unstructured.SetNestedSlice(w.manifests[last].Object, containers, "spec", "template", "spec", "containers"))
	w.restart()
	w.settle()
	if note := w.note(); note != "Normal InstallationRestored DaemonSet reclaim-agent restored to what 5-Spot installs: spec.template.spec.containers[0].image differed" {
		t.Errorf("event %q", note)
	}
}

// TestAContestedObjectIsNotFoughtOver covers a program that changes the DaemonSet after each write.
func TestAContestedObjectIsNotFoughtOver(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.r.Clock = clock
	w.Writes = nil
	contest := func(rounds int) (err error) {
		for range rounds {
			ds := w.object("DaemonSet")
			w.kubectl(ds, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"evil"}]`)
			err = w.reconcile()
		}
		return err
	}
	err := contest(30)
	w.want("then it is left alone", w.installer(), slices.Repeat([]string{"update DaemonSet"}, 5))
	if err == nil || !strings.Contains(err.Error(), "DaemonSet reclaim-agent is changed again each time it is restored, 5 times, then once in 5m0s; last time: spec.template.spec.containers[0].image differed; last writer: kubectl-set") {
		t.Errorf("the error must name the field and the program: %v", err)
	}
	if f := w.message(); !strings.Contains(f, "stop the program that changes it, or install the agent yourself") {
		t.Errorf("told %+v", f)
	}
	clock.SetTime(clock.Now().Add(5*time.Minute + time.Second))
	_ = contest(10)
	w.want("it is tried again once", w.installer(), slices.Repeat([]string{"update DaemonSet"}, 6))
	clock.SetTime(clock.Now().Add(5*time.Minute + time.Second))
	w.settle()
	w.want("once the program has stopped it is restored", w.installer(), []string{"update DaemonSet"})
	if f := w.message(); !strings.Contains(f, "is installed") {
		t.Errorf("told %+v", f)
	}
}

// installer returns the writes without the reports.
func (w *world) installer() []string {
	return slices.DeleteFunc(slices.Clone(w.Writes), func(write string) bool { return write == reports[0] })
}

// message returns the message of the condition ReclaimAgentInstalled.
func (w *world) message() string {
	w.Helper()
	w.Read(w.cluster)
	return conditions.GetMessage(w.cluster, v1alpha1.ReclaimAgentInstalledCondition)
}

// TestAContestedObjectDelaysNoOther covers a program that resets the label of the Namespace, which is installed first.
// The program also deletes the DaemonSet, which is installed last.
func TestAContestedObjectDelaysNoOther(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Now())
	contest := func() error {
		w.kubectl(w.object("Namespace"), `[{"op":"replace","path":"/metadata/labels/pod-security.kubernetes.io~1enforce","value":"restricted"}]`)
		return w.reconcile()
	}
	for range 5 {
		w.Must(contest())
	}
	if contest() == nil {
		t.Fatal("the Namespace is not contested")
	}
	w.Must(w.Client.Delete(t.Context(), w.daemonSet()))
	w.Writes = nil
	if err := contest(); err == nil || !strings.Contains(err.Error(), "installing reclaim agent: Namespace "+w.manifests[0].GetName()+" is changed again") {
		t.Errorf("the error must name the contested object: %v", err)
	}
	w.want("the DaemonSet is restored at once", w.installer(), []string{"apply DaemonSet"})
}

// TestEditsDoNotDelayADeletedObject covers a program that uses up the limit of edits of the agent's policy, and then
// deletes the policy repeatedly.
func TestEditsDoNotDelayADeletedObject(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.r.Clock = clocktesting.NewFakePassiveClock(time.Now())
	const kind = "ValidatingAdmissionPolicy"
	edit := func() error {
		w.kubectl(w.object(kind), `[{"op":"add","path":"/spec/matchConditions","value":[{"name":"never","expression":"false"}]}]`)
		return w.reconcile()
	}
	for range 5 {
		w.Must(edit())
	}
	if err := edit(); err == nil || !strings.HasSuffix(err.Error(), "last time: spec.matchConditions differed; last writer: kubectl-set") {
		t.Fatalf("the policy is not contested: %v", err)
	}
	for range 5 {
		w.Must(w.Client.Delete(t.Context(), w.object(kind)))
		w.Must(w.reconcile())
		w.object(kind)
	}
	if err := edit(); err == nil {
		t.Error("a deletion must not renew the limit of edits")
	}
	w.Must(w.Client.Delete(t.Context(), w.object(kind)))
	if err := w.reconcile(); err == nil || !strings.HasSuffix(err.Error(), "last time: it was deleted") {
		t.Errorf("the error must name the deletion: %v", err)
	}
}

// TestAMutatingWebhookSettles covers an admission policy that rewrites images, like a registry mirror.
func TestAMutatingWebhookSettles(t *testing.T) {
	w := newWorld(t, "java")
	w.mirror()
	w.want("it is installed", w.settle(), installs, reports)
	w.want("and settled", w.settle())
	w.restart()
	w.want("a restart writes what changes nothing", w.settle(), checks)
	w.want("and is settled", w.settle())
	ds := w.daemonSet()
	w.Edit(ds, func() { ds.Spec.Template.Spec.HostIPC = true })
	w.want("a change of others is restored", w.settle(), []string{"update DaemonSet"})
	if w.Read(ds); ds.Spec.Template.Spec.HostIPC || ds.Spec.Template.Spec.Containers[0].Image != "mirror/agent" {
		t.Errorf("the pod is %v", ds.Spec.Template.Spec)
	}
	if note := w.note(); !strings.Contains(note, "restored to what 5-Spot installs: spec.template.spec.hostIPC differed") || len(w.recorder.Events) > 0 {
		t.Errorf("event %q, and %d more", note, len(w.recorder.Events))
	}
}

// mirror installs the policy, and waits until it is in force.
func (w *world) mirror() {
	w.Helper()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}}
	policy.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: reclaimapi.Namespace}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}},
			}}},
		},
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "mirror/agent"}]`},
		}},
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}}
	binding.Spec.PolicyName = policy.Name
	w.Create(policy, binding)
	w.Cleanup(func() {
		for _, obj := range []client.Object{binding, policy} {
			_ = w.Client.Delete(context.WithoutCancel(w.Context()), obj)
		}
		w.waitMirror(false) // Other tests have the same API server.
	})
	w.waitMirror(true)
}

// waitMirror waits until the policy is in force, or is not.
func (w *world) waitMirror(want bool) {
	w.Helper()
	for range 300 {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: "probe"}}
		ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "probe", Image: "probe"}}
		w.Must(w.Client.Create(context.WithoutCancel(w.Context()), ds, client.DryRunAll))
		if (ds.Spec.Template.Spec.Containers[0].Image == "mirror/agent") == want {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.Fatalf("the policy is in force: %t", !want)
}

// note returns the next Event, empty if there is none.
func (w *world) note() string {
	select {
	case note := <-w.recorder.Events:
		return note
	default:
		return ""
	}
}

// drop removes Events with a prefix.
func (w *world) drop(prefix string) {
	for range len(w.recorder.Events) {
		if note := w.note(); !strings.HasPrefix(note, prefix) {
			w.recorder.Events <- note
		}
	}
}
