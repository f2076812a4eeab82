// SPDX-License-Identifier: Apache-2.0

package agentrights

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const policy = "fivespot-reclaim-agent"

// TestTheAgentsRights compares what the API server allows with the specification,
// and then looks whether the policy has anything to do with it.
func TestTheAgentsRights(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)

	requests := w.requests()
	if len(requests) < 500 {
		t.Fatalf("%d requests are too few to speak of a matrix", len(requests))
	}
	var byPolicy []request
	allowed := 0
	for _, q := range requests {
		code, body := w.send(ctx, q)
		switch got := code < 300; {
		case code == http.StatusBadRequest || code >= 500 || code == http.StatusNotFound && !strings.Contains(q.path, "/any"):
			t.Errorf("%s: was not judged: %d %s", q, code, body)
		case got != q.allowed:
			t.Errorf("%s: allowed=%t, want %t: %d %s", q, got, q.allowed, code, body)
		case got:
			allowed++
		case strings.Contains(body, policy):
			byPolicy = append(byPolicy, q)
		}
	}
	t.Logf("%d requests: %d allowed, %d denied by the policy, %d by RBAC", len(requests), allowed, len(byPolicy), len(requests)-allowed-len(byPolicy))
	if t.Failed() {
		return
	}

	w.kubectl(ctx, "delete", "validatingadmissionpolicybinding", policy)
	w.eventually(ctx, func() bool { return !w.guarded(ctx) })
	now := 0
	for _, q := range byPolicy {
		if code, body := w.send(ctx, q); code < 300 {
			now++
		} else {
			t.Logf("without the policy: %s: %d %.200s", q, code, body)
		}
	}
	if now < len(byPolicy)*9/10 || now < 300 {
		t.Errorf("without the policy %d of its %d denials are allowed, which means that this test sees nothing", now, len(byPolicy))
	}
}

// A request is one cell of the matrix.
type request struct {
	token, verb, path, contentType, what string
	body                                 any
	allowed                              bool
}

func (q request) String() string {
	return fmt.Sprintf("token %s: %s %s %s %s", q.token, q.verb, q.path, q.contentType, q.what)
}

// world has Nodes, tokens, and what ships.
type world struct {
	*testing.T
	tokens map[string]string
	client *http.Client
}

func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	config := rest.AnonymousClientConfig(shared.Management.Admin.Config)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, client: httpClient, tokens: map[string]string{}}
	for _, node := range []string{own, asking, other, renewed} {
		w.createNode(ctx, node)
	}
	w.must(shared.Management.EnsureNamespace(ctx, reclaim.Namespace))
	for _, file := range []string{"policy.yaml", "rbac.yaml"} {
		w.kubectl(ctx, "apply", "-f", filepath.Join(system.Repository(), "config", "reclaim-agent", file))
	}
	w.createPod(ctx, bound, own)
	w.createPod(ctx, served, asking)
	w.createPod(ctx, former, renewed)
	for _, token := range []string{bound, served, former, unbound} {
		w.tokens[token] = w.issue(ctx, token)
	}
	w.must(shared.Management.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: renewed}}))
	w.createNode(ctx, renewed)
	w.must(shared.Management.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(own)}}))
	w.eventually(ctx, func() bool { return w.guarded(ctx) })
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) kubectl(ctx context.Context, args ...string) {
	w.Helper()
	_, err := shared.Management.Kubectl(ctx, args...)
	w.must(err)
}

func (w *world) createNode(ctx context.Context, name string) {
	w.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{"team": "lab", reclaim.AgentLabel: reclaim.AgentLabelValue},
			Annotations: map[string]string{"example.org/kept": "x", "cluster.x-k8s.io/machine": name},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "example.org/kept", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if name == asking {
		node.Annotations[reclaim.RequestedAnnotation] = "true"
		node.Annotations[reclaim.ReasonAnnotation] = reclaim.Reason("idea")
		node.Annotations[reclaim.RequestedAtAnnotation] = "2026-04-20T21:00:00Z"
	}
	w.must(shared.Management.Client.Create(ctx, node))
}

func (w *world) createPod(ctx context.Context, name, node string) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "reclaim-agent", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	w.must(shared.Management.Client.Create(ctx, pod))
}

// issue requests a token that is bound to the pod of that name.
func (w *world) issue(ctx context.Context, pod string) string {
	w.Helper()
	tr := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	if pod != unbound {
		tr.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: "reclaim-agent"}}
	w.must(shared.Management.Client.SubResource("token").Create(ctx, sa, tr))
	return tr.Status.Token
}

// guarded reports whether the policy is in force.
func (w *world) guarded(ctx context.Context) bool {
	code, body := w.send(ctx, request{
		token: bound, verb: http.MethodPatch, path: "/api/v1/nodes/" + own, contentType: string(types.MergePatchType),
		body: map[string]any{"spec": map[string]any{"unschedulable": true}},
	})
	return code >= 300 && strings.Contains(body, policy)
}

func (w *world) eventually(ctx context.Context, cond func() bool) {
	w.Helper()
	for !cond() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			w.Fatal(ctx.Err())
		}
	}
}

// requests are all cells of the matrix.
func (w *world) requests() []request {
	var out []request
	for _, token := range []string{bound, served, former, unbound} {
		for _, node := range []string{own, asking, other, renewed} {
			rows := changes
			if node == asking {
				rows = slices.Concat(rows, removals)
			}
			for _, c := range rows {
				for _, form := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.JSONPatchType} {
					out = append(out, request{
						token: token, verb: http.MethodPatch, path: "/api/v1/nodes/" + node, contentType: string(form), what: c.what,
						body: c.patch(form), allowed: c.allows(token, node),
					})
				}
			}
		}
		for _, c := range calls() {
			out = append(out, request{token: token, verb: c.verb, path: c.path, body: map[string]any{}, allowed: c.allowed})
		}
	}
	return out
}

// patch is the change in one of its forms.
func (c change) patch(form types.PatchType) any {
	parts := append([]change{c}, c.more...)
	if form == types.JSONPatchType {
		ops := make([]map[string]any, len(parts))
		for i, p := range parts {
			op := map[string]any{"op": "add", "path": pointer(p.path), "value": p.value}
			if p.value == nil {
				op = map[string]any{"op": "remove", "path": pointer(p.path)}
			}
			ops[i] = op
		}
		return ops
	}
	root := map[string]any{}
	for _, p := range parts {
		at := root
		for _, part := range p.path[:len(p.path)-1] {
			next, ok := at[part].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[part] = next
			}
			at = next
		}
		at[p.path[len(p.path)-1]] = p.value
	}
	return root
}

// pointer is a path as RFC 6901 writes it.
func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + escape.Replace(part))
	}
	return b.String()
}

// send makes a request that leaves no trace: admission judges dry runs as well.
func (w *world) send(ctx context.Context, q request) (code int, body string) {
	w.Helper()
	payload, err := json.Marshal(q.body)
	w.must(err)
	url := shared.Management.URL + q.path
	if q.verb != http.MethodGet {
		url += "?dryRun=All"
	}
	if q.verb == http.MethodGet {
		payload = nil
	}
	req, err := http.NewRequestWithContext(ctx, q.verb, url, bytes.NewReader(payload))
	w.must(err)
	req.Header.Set("Authorization", "Bearer "+w.tokens[q.token])
	req.Header.Set("Content-Type", "application/json")
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	res, err := w.client.Do(req)
	w.must(err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	w.must(err)
	return res.StatusCode, string(answer)
}

// TestTheSpecificationNamesEveryAnnotation keeps the table and the agent together.
func TestTheSpecificationNamesEveryAnnotation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(system.Repository(), "config", "reclaim-agent", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
		if !strings.Contains(string(text), "'"+key+"'") {
			t.Errorf("the policy does not know %s", key)
		}
	}
}
