// SPDX-License-Identifier: Apache-2.0

package guard_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
)

// evict sends the replica an admission review for the eviction of a pod.
func (w *world) evict(r *replica, pod *corev1.Pod) *admissionv1.AdmissionResponse {
	w.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "x", Namespace: pod.Namespace, Name: pod.Name, Operation: admissionv1.Create, SubResource: "eviction",
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + pod.Name + `"}}`)},
		},
	})
	w.Must(err)
	w.Read(w.config)
	resp := w.post(r, *w.config.Webhooks[0].ClientConfig.Service.Path, body)
	defer func() { _ = resp.Body.Close() }()
	review := &admissionv1.AdmissionReview{}
	w.Must(json.NewDecoder(resp.Body).Decode(review))
	return review.Response
}

// post sends a body to a path of the replica, as any client that reaches it can.
func (w *world) post(r *replica, path string, body []byte) *http.Response {
	w.Helper()
	caller := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.trusted(), ServerName: host}}}
	defer caller.CloseIdleConnections()
	resp, err := caller.Post("https://"+r.webhook+path, "application/json", bytes.NewReader(body))
	w.Must(err)
	return resp
}

func (w *world) pod(namespace, node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db-0", Labels: map[string]string{"app": "db"}}}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "x", Image: "x"}}, TerminationGracePeriodSeconds: new(int64(0))}
	return pod
}

// reasons returns the reasons of the Events about an object.
func (w *world) reasons(obj client.Object) (reasons []string) {
	w.Helper()
	list := &eventsv1.EventList{}
	w.Must(w.Client.List(w.Context(), list, client.InNamespace(obj.GetNamespace())))
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.UID == obj.GetUID() {
			reasons = append(reasons, e.Reason)
		}
	}
	slices.Sort(reasons)
	return reasons
}

// gathered sums the values of a metric over the series that have a label with that value.
func gathered(t *testing.T, registry prometheus.Gatherer, name, label string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == label {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// install gives the guard its permissions, and narrows them. Guards started later run as the guard's user.
func (w *world) install() {
	w.Helper()
	objects, err := manifests.Objects()
	w.Must(err)
	for _, u := range objects {
		if strings.HasPrefix(u.GetAPIVersion(), "rbac.") || u.GetKind() == "ServiceAccount" || strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") {
			w.Must(w.Client.Apply(w.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership))
		}
	}
	w.as = "system:serviceaccount:" + reclaimapi.Namespace + ":" + guard.Name
}

// TestAStolenToken sends calls that a thief with the guard's token could try, and the guard's own calls.
func TestAStolenToken(t *testing.T) {
	w := newWorld(t)
	w.Must(w.keep())
	w.install()
	config := rest.CopyConfig(api.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: w.as, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	thief, err := client.New(config, client.Options{Scheme: guard.Scheme()})
	w.Must(err)
	newPod := func(namespace string) *corev1.Pod {
		pod := w.pod(namespace, "")
		pod.Name, pod.GenerateName = "", "pod-"
		w.Create(pod)
		t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)) })
		return pod
	}
	pod, system := newPod(api.Namespace(t)), newPod("kube-system")
	change := func(obj client.Object, f func()) error {
		w.Read(obj)
		before, ok := obj.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T", obj)
		}
		f()
		return thief.Patch(t.Context(), obj, client.MergeFrom(before), client.DryRunAll)
	}
	hook := func(f func(*admissionregistrationv1.ValidatingWebhook)) func() error {
		return func() error {
			return change(w.config, func() { f(&w.config.Webhooks[0]) })
		}
	}
	attempts := map[string]func() error{
		"Image":         func() error { return change(system, func() { system.Spec.Containers[0].Image = "evil" }) },
		"ImageAnywhere": func() error { return change(pod, func() { pod.Spec.Containers[0].Image = "evil" }) },
		"Toleration": func() error {
			return change(pod, func() { pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: "Exists"}) })
		},
		"Finalizer": func() error { return change(pod, func() { pod.Finalizers = []string{"example.com/stay"} }) },
		"Owner": func() error {
			return change(pod, func() {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "b"}}
			})
		},
		"DeleteInKubeSystem": func() error { return thief.Delete(t.Context(), system, client.DryRunAll) },
		"FailurePolicy": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.FailurePolicy = new(admissionregistrationv1.Fail)
		}),
		"Rules": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.Rules = []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"*"}, Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"},
			}}}
		}),
		"Namespaces": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}),
		"Conditions": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "true"}}
		}),
		"Timeout": hook(func(h *admissionregistrationv1.ValidatingWebhook) { h.TimeoutSeconds = new(int32(30)) }),
		"URL": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.ClientConfig.Service, h.ClientConfig.URL = nil, new("https://evil.example.com/eviction/x")
		}),
		"Service":     hook(func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.Service.Name = "evil" }),
		"Namespace":   hook(func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.Service.Namespace = "evil" }),
		"Port":        hook(func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.Service.Port = new(int32(444)) }),
		"PathOfOther": hook(func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.Service.Path = new("/") }),
		"Second": func() error {
			return change(w.config, func() {
				second := w.config.Webhooks[0]
				second.Name = "second.5spot.finos.org"
				w.config.Webhooks = append(w.config.Webhooks, second)
			})
		},
		"None": func() error { return change(w.config, func() { w.config.Webhooks = nil }) },
	}
	eventually(t, "the policies count", func() bool { return attempts["Image"]() != nil && attempts["FailurePolicy"]() != nil })
	for name, attempt := range attempts {
		if err := attempt(); err == nil || !strings.Contains(err.Error(), "the eviction guard may") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, use := range map[string]func() error{
		"Annotation": func() error {
			return change(pod, func() { pod.Annotations = map[string]string{"example.com/move": "true"} })
		},
		"Label":  func() error { return change(system, func() { system.Labels["example.com/move"] = "true" }) },
		"Delete": func() error { return thief.Delete(t.Context(), pod, client.DryRunAll) },
		"Certificate": hook(func(h *admissionregistrationv1.ValidatingWebhook) {
			h.ClientConfig.CABundle, h.ClientConfig.Service.Path = slices.Repeat(h.ClientConfig.CABundle, 2), new("/eviction/x")
		}),
	} {
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestItsRightsAreEnough runs the guard with the permissions of its manifests only, from the first eviction to the end
// of the request.
func TestItsRightsAreEnough(t *testing.T) {
	w := newWorld(t)
	w.install()
	registry := prometheus.NewRegistry()
	r := w.start(guard.Options{Certificates: guard.CertificatesSelf, Registry: registry, Version: "v1", NameProtection: time.Minute})
	eventually(t, "a certificate is made", func() bool { return w.Read(w.secret) && len(w.secret.Data["tls.crt"]) > 0 })
	w.mount(r)
	eventually(t, "it is Ready", func() bool { return r.probe("/readyz") })

	ended := gathered(t, registry, "fivespot_reschedule_requests_ended_total", "overdue")
	namespace := api.Namespace(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	w.Create(node)
	t.Cleanup(func() { _ = w.Client.Delete(t.Context(), node) })
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"podSelector": map[string]any{"matchLabels": map[string]any{"app": "db"}},
		"request":     map[string]any{"annotation": map[string]any{"key": "example.com/move", "value": "true"}}, "maxConcurrent": int64(3),
		"deadlineSeconds": int64(3600), "namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}},
	}}}
	policy.SetGroupVersionKind(evictionv1.GroupVersion.WithKind("ClusterReschedulePolicy"))
	policy.SetName(namespace)
	w.Create(policy)
	pod := w.pod(namespace, node.Name)
	w.Create(pod)
	pod.Status.Phase = corev1.PodRunning
	w.Must(w.Client.Status().Update(t.Context(), pod))

	var answer *admissionv1.AdmissionResponse
	eventually(t, "its operator is asked", func() bool {
		answer = w.evict(r, pod)
		return !answer.Allowed && answer.Result.Code == http.StatusTooManyRequests && w.Read(pod) && pod.Annotations["example.com/move"] == "true"
	})
	for _, path := range []string{guard.Path, guard.Path + "/", guard.Path + "/" + strings.Repeat("A", 26), "/"} {
		resp := w.post(r, path, nil)
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
			t.Errorf("whoever asks at %s is answered %s", path, resp.Status)
		}
	}
	if want := []string{"ClusterReschedulePolicy " + policy.GetName() + ": its operator has the request to move it"}; !slices.Equal(answer.Warnings, want) {
		t.Errorf("warnings %q, want %q", answer.Warnings, want)
	}
	for range 5 {
		w.evict(r, pod)
	}
	eventually(t, "it is told on the pod", func() bool { return slices.Contains(w.reasons(pod), evictionv1.RescheduleRequestedEvent) })
	eventually(t, "the leader counts it", func() bool { return gathered(t, registry, "fivespot_reschedule_requests", "open") == 1 })
	if n := gathered(t, registry, "fivespot_eviction_verdicts_total", "Waiting"); n < 5 {
		t.Errorf("%v verdicts", n)
	}
	request := &evictionv1.RescheduleRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(pod.UID)}}
	late := request.DeepCopy()
	look := func() { // A change of a policy enqueues every request.
		w.Edit(policy, func() { policy.SetAnnotations(map[string]string{"at": w.clock.Now().String()}) })
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
	look()
	eventually(t, "it is overdue", func() bool { return slices.Contains(w.reasons(pod), evictionv1.RescheduleOverdueEvent) })
	if diff := cmp.Diff([]string{evictionv1.RescheduleOverdueEvent, evictionv1.RescheduleRequestedEvent}, w.reasons(pod)); diff != "" {
		t.Errorf("told once each: -want, +got:\n%s", diff)
	}
	reader, err := client.New(api.Config, client.Options{Scheme: guard.Scheme()})
	w.Must(err)
	w.Must(reader.Get(t.Context(), client.ObjectKeyFromObject(request), request))
	w.Must(w.Client.Delete(t.Context(), pod))
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	look()
	eventually(t, "it is told that the pod has left", func() bool { return slices.Contains(w.reasons(request), evictionv1.RescheduledEvent) })
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	look()
	eventually(t, "the request is deleted", func() bool { return reader.Get(t.Context(), client.ObjectKeyFromObject(late), late) != nil })
	eventually(t, "it is counted as late", func() bool {
		return gathered(t, registry, "fivespot_reschedule_requests_ended_total", "overdue") == ended+1
	})

	w.Create(w.pod(namespace, node.Name))
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: guard.Name}}
	w.Must(w.Client.Delete(t.Context(), binding))
	eventually(t, "whoever may not read policies is not Ready", func() bool { return !r.probe("/readyz") })
	if !r.probe("/healthz") {
		t.Error("and is not ended for it")
	}
	if w.evict(r, pod).Result.Code != http.StatusInternalServerError || gathered(t, registry, "fivespot_eviction_verdicts_total", "Error") == 0 {
		t.Error("what it cannot decide is an error, and counted")
	}
}
