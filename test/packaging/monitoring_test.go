// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func podMonitor(t *testing.T) (selector map[string]string, endpoint map[string]any) {
	t.Helper()
	for _, u := range agentManifests(t, "monitoring") {
		if u.GetKind() == "PodMonitor" {
			selector, _, _ = unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
			endpoints, _, _ := unstructured.NestedSlice(u.Object, "spec", "podMetricsEndpoints")
			return selector, endpoints[0].(map[string]any)
		}
	}
	t.Fatal("no PodMonitor")
	return nil, nil
}

// TestPrometheusFindsEveryManager covers the shards, which have none of the first installation's labels for clusterctl.
func TestPrometheusFindsEveryManager(t *testing.T) {
	t.Setenv("FIVESPOT_SHARD", "b")
	t.Setenv("FIVESPOT_WATCH_FILTER", "shard-b")
	selector, endpoint := podMonitor(t)
	for _, directory := range []string{"default", "shard"} {
		pods := deploymentOf(t, filledIn(t, directory)).Spec.Template
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pods.Labels)) {
			t.Errorf("the PodMonitor selects %v, and the pods of config/%s have the labels %v", selector, directory, pods.Labels)
		}
		if !slices.ContainsFunc(pods.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == endpoint["port"] }) {
			t.Errorf("the pods of config/%s have no port %s", directory, endpoint["port"])
		}
	}
}

// TestPrometheusMayReadMetrics checks the token of the PodMonitor as the manager does: by a TokenReview and a
// SubjectAccessReview.
func TestPrometheusMayReadMetrics(t *testing.T) {
	ctx, c := t.Context(), client.WithFieldValidation(shared.Management.Client, metav1.FieldValidationStrict)
	if err := shared.Management.EnsureNamespace(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	for _, u := range agentManifests(t, "monitoring") {
		if u.GroupVersionKind().Group == "monitoring.coreos.com" {
			continue
		}
		if err := c.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	_, endpoint := podMonitor(t)
	name, _, _ := unstructured.NestedString(endpoint, "authorization", "credentials", "name")
	key, _, _ := unstructured.NestedString(endpoint, "authorization", "credentials", "key")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := shared.Management.Wait(ctx, secret, func() error {
		if len(secret.Data[key]) == 0 {
			return errors.New("the Secret has no token")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	token := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(secret.Data[key])}}
	if err := c.Create(ctx, token); err != nil || !token.Status.Authenticated {
		t.Fatalf("the token: %v, %v", token.Status, err)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: token.Status.User.Username, Groups: token.Status.User.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	if err := c.Create(ctx, access); err != nil || !access.Status.Allowed {
		t.Errorf("%s may not read /metrics: %v, %v", token.Status.User.Username, access.Status, err)
	}
}
