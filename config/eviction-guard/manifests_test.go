// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	reclaimagent "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
	shared "github.com/finos/cluster-api-addon-provider-5spot/internal/manifests"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }, func(env *envtest.Environment) {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, "crd")
	}))
}

func objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	all, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// find reads the one object of a kind and name into obj, strictly.
func find(t *testing.T, kind, name string, obj any) {
	t.Helper()
	for _, u := range objects(t) {
		if u.GetKind() == kind && u.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, obj, true); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %s %s", kind, name)
}

func TestTheOrderIsOneOfInstallation(t *testing.T) {
	var kinds []string
	for _, u := range objects(t) {
		kinds = append(kinds, u.GetKind())
		if u.GetLabels()["app.kubernetes.io/name"] != "5spot" || u.GetLabels()["app.kubernetes.io/component"] != "eviction-guard" {
			t.Errorf("%s %s has labels %v", u.GetKind(), u.GetName(), u.GetLabels())
		}
		if ns := u.GetNamespace(); ns != "" && ns != reclaimapi.Namespace {
			t.Errorf("%s %s is in %s", u.GetKind(), u.GetName(), ns)
		}
	}
	if kinds[0] != "Namespace" || kinds[1] != "CustomResourceDefinition" || slices.Index(kinds, "Deployment") < slices.Index(kinds, "RoleBinding") {
		t.Errorf("kinds first, and rights before who uses them: %v", kinds)
	}
	if last := len(kinds) - 1; slices.Index(kinds, "ValidatingWebhookConfiguration") != last {
		t.Errorf("the webhook is not registered last, when something serves it: %v", kinds)
	}
}

// TestBothInstallTheSameNamespace is about the level of Pod Security, without which
// there is no agent.
func TestBothInstallTheSameNamespace(t *testing.T) {
	agent, err := reclaimagent.Objects()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := objects(t)[0].DeepCopy(), agent[0]
	for _, u := range []*unstructured.Unstructured{ours, theirs} {
		labels := u.GetLabels()
		delete(labels, "app.kubernetes.io/component")
		u.SetLabels(labels)
	}
	if diff := cmp.Diff(theirs.Object, ours.Object); diff != "" {
		t.Errorf("-the agent's, +the guard's:\n%s", diff)
	}
}

// TestTheGuardMayDoWhatItCalls lists its calls: a right that is not here is used by nothing.
func TestTheGuardMayDoWhatItCalls(t *testing.T) {
	want := map[string]string{
		" pods":       "delete get list patch watch",
		" nodes":      "get list watch",
		" namespaces": "get list watch",
		"eviction.5spot.finos.org reschedulepolicies":                                "list watch",
		"eviction.5spot.finos.org clusterreschedulepolicies":                         "list watch",
		"eviction.5spot.finos.org reschedulerequests":                                "create delete get list patch watch",
		"events.k8s.io events":                                                       "create patch",
		"admissionregistration.k8s.io validatingwebhookconfigurations/" + guard.Name: "get patch",
	}
	of := func(rules []rbacv1.PolicyRule) map[string]string {
		got := map[string]string{}
		for _, r := range rules {
			for _, resource := range r.Resources {
				slices.Sort(r.Verbs)
				key := r.APIGroups[0] + " " + resource
				if len(r.ResourceNames) > 0 {
					key += "/" + strings.Join(r.ResourceNames, ",")
				}
				got[key] = strings.Join(r.Verbs, " ")
			}
		}
		return got
	}
	cluster, own, tracking := &rbacv1.ClusterRole{}, &rbacv1.Role{}, &rbacv1.ClusterRole{}
	find(t, "ClusterRole", guard.Name, cluster)
	if diff := cmp.Diff(want, of(cluster.Rules)); diff != "" {
		t.Errorf("everywhere: -want, +got:\n%s", diff)
	}
	find(t, "Role", guard.Name, own)
	want = map[string]string{
		" secrets/" + guard.SecretName: "get patch", " events": "create patch",
		"coordination.k8s.io leases/" + guard.LeaseName: "get update", "coordination.k8s.io leases": "create",
	}
	if diff := cmp.Diff(want, of(own.Rules)); diff != "" {
		t.Errorf("in its namespace: -want, +got:\n%s", diff)
	}
	find(t, "ClusterRole", guard.Name+"-tracking", tracking)
	if tracking.AggregationRule == nil || tracking.Rules != nil {
		t.Errorf("its rules are those of presets, and nobody else may say that it has none: %v", tracking)
	}
}

func TestTheWebhookIsAskedForGuardedNamespacesOnly(t *testing.T) {
	w := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	find(t, "ValidatingWebhookConfiguration", guard.Name, w)
	hook := w.Webhooks[0]
	if hook.ClientConfig.Service.Path != nil || hook.ClientConfig.Service.Name != guard.Name || hook.ClientConfig.CABundle != nil {
		t.Errorf("asked at %v", hook.ClientConfig)
	}
	if hook.NamespaceSelector.MatchLabels[evictionv1.GuardedLabel] != "enabled" || *hook.FailurePolicy != admissionregistrationv1.Ignore ||
		*hook.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun || *hook.TimeoutSeconds != 5 {
		t.Errorf("unrelated evictions may suffer: %v", hook)
	}
	if diff := cmp.Diff([]string{"kube-system", reclaimapi.Namespace}, hook.NamespaceSelector.MatchExpressions[0].Values); diff != "" {
		t.Errorf("never asked about: -want, +got:\n%s", diff)
	}
}

func TestTheDeploymentRunsWithItsFlags(t *testing.T) {
	d := &appsv1.Deployment{}
	find(t, "Deployment", guard.Name, d)
	c := d.Spec.Template.Spec.Containers[0]
	f := &guard.Flags{}
	if err := f.FlagSet(c.Name).Parse(c.Args); err != nil {
		t.Fatal(err)
	}
	if err := f.Validate(); err != nil || f.Certificates != guard.CertificatesSelf || f.CertDir != c.VolumeMounts[0].MountPath {
		t.Errorf("%v: %v %q", err, f.Certificates, f.CertDir)
	}
	pod := d.Spec.Template
	service := &corev1.Service{}
	find(t, "Service", guard.Name, service)
	for k, v := range service.Spec.Selector {
		if pod.Labels[k] != v || d.Spec.Selector.MatchLabels[k] != v {
			t.Errorf("the Service, the Deployment and its pods disagree about %s", k)
		}
	}
	changed, err := shared.WithImage(objects(t), "example.com/5spot:v1")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(changed, func(u *unstructured.Unstructured) bool {
		return strings.Contains(fmt.Sprint(u.Object), "example.com/5spot:v1")
	}) {
		t.Error("it has no image of its own")
	}
}

// TestTheAPIServerTakesIt applies everything, and the presets.
func TestTheAPIServerTakesIt(t *testing.T) {
	all := objects(t)
	presets, err := shared.Read(os.DirFS("policies"))
	if err != nil {
		t.Fatal(err)
	}
	tracking := &rbacv1.ClusterRole{}
	find(t, "ClusterRole", guard.Name+"-tracking", tracking)
	for _, u := range presets {
		for k, v := range tracking.AggregationRule.ClusterRoleSelectors[0].MatchLabels {
			if u.GetKind() == "ClusterRole" && u.GetLabels()[k] != v {
				t.Errorf("the guard does not get the rights of %s", u.GetName())
			}
		}
	}
	for _, u := range append(all, presets...) {
		err := server.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
		if err != nil {
			t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	list := &evictionv1.ClusterReschedulePolicyList{}
	u := &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(evictionv1.GroupVersion.WithKind("ClusterReschedulePolicyList"))
	if err := server.Client.List(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.UnstructuredContent(), list, true); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.Request.Annotation == nil || p.Spec.DeadlineSeconds == 0 || p.Spec.Fallback != evictionv1.FallbackAllow {
			t.Errorf("%s asks for %v", p.Name, p.Spec)
		}
	}
	files, err := os.ReadDir("policies")
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != len(files)-1 {
		t.Errorf("%d policies of %d files are in the kustomization", len(list.Items), len(files)-1)
	}
}

// TestTheGarbageCollectorKnowsTheLimit holds that GOMEMLIMIT leaves a fifth of the memory limit to memory that is not
// Go's.
func TestTheGarbageCollectorKnowsTheLimit(t *testing.T) {
	d := &appsv1.Deployment{}
	find(t, "Deployment", guard.Name, d)
	c := d.Spec.Template.Spec.Containers[0]
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		soft, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B"))
		if limit := c.Resources.Limits.Memory().Value(); err != nil || soft.Value() > limit*4/5 {
			t.Errorf("GOMEMLIMIT is %s of %d bytes, want at most four fifths: %v", e.Value, limit, err)
		}
		return
	}
	t.Error("GOMEMLIMIT is not set")
}
