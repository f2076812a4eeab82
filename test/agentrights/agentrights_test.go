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
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	policy      = "fivespot-reclaim-agent"
	nothingElse = "may annotate its Node, and do nothing else to Nodes"
)

// TestTheAgentsRights compares the API server's decisions with the specification, and then checks that they depend on
// the policy.
func TestTheAgentsRights(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)

	byPolicy := w.wantSpecified(ctx, w.requests(false))
	w.permitHold(ctx)
	w.wantSpecified(ctx, w.requests(true))
	w.wantTextsOfOthersIgnored(ctx)
	if t.Failed() {
		return
	}

	w.wantBeyondRBAC(ctx)
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

// permitHold changes the policy as the manager does in a Cluster with a reclaimHold.
func (w *world) permitHold(ctx context.Context) {
	w.Helper()
	w.kubectl(ctx, "patch", "validatingadmissionpolicy", policy, "--type=json", "-p",
		`[{"op":"test","path":"/spec/variables/0/name","value":"hold"},{"op":"replace","path":"/spec/variables/0/expression","value":"true"}]`)
	w.eventually(ctx, func() bool {
		code, _ := w.send(ctx, request{
			token: bound, verb: http.MethodPatch, path: "/api/v1/nodes/" + own, form: form{contentType: types.MergePatchType},
			body: map[string]any{"metadata": map[string]any{"annotations": map[string]any{reclaim.HoldAnnotation: reclaim.HoldState{}.Text()}}},
		})
		return code == http.StatusOK
	})
}

// wantSpecified checks that the API server allows exactly the requests that are specified. It returns the requests
// that the policy denied.
func (w *world) wantSpecified(ctx context.Context, requests []request) (byPolicy []request) {
	w.Helper()
	if len(requests) < 500 {
		w.Fatalf("%d requests are too few to speak of a matrix", len(requests))
	}
	t, allowed := w.T, 0
	for _, q := range requests {
		code, body := w.send(ctx, q)
		switch got := code < 300; {
		case code == http.StatusBadRequest || code >= 500 || code == http.StatusNotFound && !strings.Contains(q.path, "/any"):
			t.Errorf("%s: was not judged: %d %s", q, code, body)
		case got != q.allowed:
			t.Errorf("%s: allowed=%t, want %t: %d %.1000s", q, got, q.allowed, code, body)
		case got:
			allowed++
			w.wantOthersKept(q, body)
		case strings.Contains(body, policy):
			byPolicy = append(byPolicy, q)
		}
	}
	t.Logf("%d requests: %d allowed, %d denied by the policy, %d by RBAC", len(requests), allowed, len(byPolicy), len(requests)-allowed-len(byPolicy))
	return byPolicy
}

// wantTextsOfOthersIgnored checks that values which another client wrote do not keep the agent from its other writes.
func (w *world) wantTextsOfOthersIgnored(ctx context.Context) {
	w.Helper()
	w.kubectl(ctx, "annotate", "node", own, reclaim.RequestedAnnotation+"=false", reclaim.ReasonAnnotation+"="+strings.Repeat("y", 400))
	defer w.kubectl(ctx, "annotate", "node", own, reclaim.RequestedAnnotation+"-", reclaim.ReasonAnnotation+"-")
	code, body := w.send(ctx, request{
		token: bound, verb: http.MethodPatch, path: "/api/v1/nodes/" + own, form: form{contentType: types.MergePatchType},
		body: map[string]any{"metadata": map[string]any{"annotations": map[string]any{reclaim.StateAnnotation: states[0]}}},
	})
	if code != http.StatusOK {
		w.Errorf("the agent cannot report its state: %d %s", code, body)
	}
}

// wantBeyondRBAC checks what the policy denies although another binding grants it.
func (w *world) wantBeyondRBAC(ctx context.Context) {
	w.Helper()
	w.kubectl(ctx, "create", "clusterrole", "all-of-nodes", "--verb=*", "--resource=nodes,nodes/status,nodes/proxy")
	w.kubectl(ctx, "create", "clusterrolebinding", "all-of-nodes", "--clusterrole=all-of-nodes", "--serviceaccount="+reclaim.Namespace+":reclaim-agent")
	defer w.kubectl(ctx, "delete", "clusterrolebinding,clusterrole", "all-of-nodes")
	w.eventually(ctx, func() bool {
		code, _ := w.send(ctx, request{token: bound, verb: http.MethodGet, path: "/api/v1/nodes"})
		return code == http.StatusOK
	})
	for _, q := range wider() {
		q.token = bound
		if code, body := w.send(ctx, q); code < 400 || !strings.Contains(body, nothingElse) {
			w.Errorf("%s: not denied because %q: %d %.1000s", q, nothingElse, code, body)
		}
	}
}

// TestTheTokenOfADeletedPod checks that the token is rejected, even if another pod has the name now.
func TestTheTokenOfADeletedPod(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := newClient(t)
	w.must(shared.Management.EnsureNamespace(ctx, reclaim.Namespace))
	w.kubectl(ctx, "apply", "-f", filepath.Join(system.Repository(), "config", "reclaim-agent", "rbac.yaml"))
	const node, pod = "reinstalled", "restarted"
	w.createNode(ctx, node)
	w.issue(ctx, pod, node)
	w.tokens["deleted"] = w.tokens[pod]
	asks := request{
		token: "deleted", verb: http.MethodPatch, path: "/api/v1/nodes/" + node, form: form{contentType: types.MergePatchType},
		body: map[string]any{"metadata": map[string]any{"annotations": map[string]any{reclaim.RequestedAnnotation: "true"}}},
	}
	w.eventually(ctx, func() bool { code, _ := w.send(ctx, asks); return code == http.StatusOK })
	w.kubectl(ctx, "-n", reclaim.Namespace, "delete", "pod", pod, "--force")
	w.issue(ctx, pod, node)
	// An API server may cache a valid token for some seconds.
	w.eventually(ctx, func() bool { code, _ := w.send(ctx, asks); return code == http.StatusUnauthorized })
	asks.token = pod
	if code, body := w.send(ctx, asks); code != http.StatusOK {
		t.Errorf("the token of the pod that runs: %d %s", code, body)
	}
}

// TestNodesHaveNoOtherSubresources checks that the specification covers all subresources.
func TestNodesHaveNoOtherSubresources(t *testing.T) {
	out, err := shared.Management.Kubectl(t.Context(), "get", "--raw", "/api/v1")
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list.APIResources {
		if r.Name == "nodes" || strings.HasPrefix(r.Name, "nodes/") {
			got = append(got, r.Name)
		}
	}
	if diff := cmp.Diff([]string{"nodes", "nodes/proxy", "nodes/status"}, got); diff != "" {
		t.Errorf("-known to the matrix, +served:\n%s", diff)
	}
}

// A request is one cell of the matrix.
type request struct {
	token, verb, path, what string
	form
	// node is the Node that a change is for, empty for other requests.
	node    string
	body    any
	allowed bool
}

func (q request) String() string {
	return fmt.Sprintf("token %s: %s %s?%s %s %s", q.token, q.verb, q.path, q.query, q.contentType, q.what)
}

// world has Nodes, tokens, and the released objects.
type world struct {
	*testing.T
	tokens map[string]string
	client *http.Client
	// nodes are the Nodes as created; no request changes them.
	nodes map[string]*corev1.Node
}

// newClient returns an empty world.
func newClient(t *testing.T) *world {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(rest.AnonymousClientConfig(shared.Management.Admin.Config))
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, client: httpClient, tokens: map[string]string{}, nodes: map[string]*corev1.Node{}}
}

func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	w := newClient(t)
	w.must(shared.Management.EnsureNamespace(ctx, reclaim.Namespace))
	for _, file := range []string{"policy.yaml", "rbac.yaml"} {
		w.kubectl(ctx, "apply", "-f", filepath.Join(system.Repository(), "config", "reclaim-agent", file))
	}
	w.issue(ctx, bound, own) // before the Node exists, so that the token does not have its UID
	for _, node := range []string{own, asking, other, renewed} {
		w.createNode(ctx, node)
	}
	w.issue(ctx, served, asking)
	w.issue(ctx, former, renewed)
	account, err := shared.Management.ServiceAccount(ctx, client.ObjectKey{Namespace: reclaim.Namespace, Name: "reclaim-agent"})
	w.must(err)
	w.tokens[unbound] = account.Config.BearerToken
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

// createNode applies a Node as lab.
func (w *world) createNode(ctx context.Context, name string) {
	w.Helper()
	text, err := json.Marshal(nodeOf(name))
	w.must(err)
	_, err = shared.Management.KubectlInput(ctx, string(text), "apply", "--server-side", "--field-manager="+lab, "-f", "-")
	w.must(err)
	node := &corev1.Node{}
	w.must(shared.Management.Client.Get(ctx, client.ObjectKey{Name: name}, node))
	w.nodes[name] = node
}

// issue runs a pod on a Node, and stores its token under the pod's name.
func (w *world) issue(ctx context.Context, token, node string) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: token},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "reclaim-agent", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	w.must(shared.Management.Client.Create(ctx, pod))
	user, err := shared.Management.PodUser(ctx, pod)
	w.must(err)
	w.tokens[token] = user.Config.BearerToken
}

// guarded reports whether the policy is in force.
func (w *world) guarded(ctx context.Context) bool {
	code, body := w.send(ctx, request{
		token: bound, verb: http.MethodPatch, path: "/api/v1/nodes/" + own, form: form{contentType: types.MergePatchType},
		// Several validations deny this, so a test that removes one of them still detects the policy.
		body: map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "mine"}}, "spec": map[string]any{"unschedulable": true}},
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

// requests returns all cells of the matrix, for a Cluster with or without a reclaimHold.
func (w *world) requests(holds bool) []request {
	var out []request
	for _, token := range []string{bound, served, former, unbound} {
		for _, node := range []string{own, asking, other, renewed} {
			rows := changes
			if node == asking {
				rows = slices.Concat(rows, removals)
			}
			for _, c := range rows {
				for _, f := range c.forms(node) {
					out = append(out, request{
						token: token, verb: http.MethodPatch, path: "/api/v1/nodes/" + node, node: node, form: f, what: c.what,
						body: c.body(f, node), allowed: c.allows(token, node, holds),
					})
				}
			}
		}
		for _, a := range applies() {
			out = append(out, request{
				token: token, verb: http.MethodPatch, path: "/api/v1/nodes/" + a.node, node: a.node, form: a.form, what: a.what,
				body: a.body, allowed: a.allowed && token == bound,
			})
		}
		for _, c := range calls() {
			out = append(out, request{token: token, verb: c.verb, path: c.path, body: map[string]any{}, allowed: c.allowed})
		}
	}
	return out
}

// wantOthersKept checks that an allowed request changed only the annotations of a request.
func (w *world) wantOthersKept(q request, body string) {
	w.Helper()
	if q.node == "" {
		return
	}
	got := &corev1.Node{}
	if err := json.Unmarshal([]byte(body), got); err != nil {
		w.Errorf("%s: the answer is no Node: %v", q, err)
		return
	}
	if diff := cmp.Diff(others(w.nodes[q.node]), others(got), cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s: it changes more than it may: -before, +after:\n%s", q, diff)
	}
}

// others is a Node without the annotations of a request, and without their managed fields.
func others(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.TypeMeta, node.ResourceVersion, node.ManagedFields = metav1.TypeMeta{}, "", nil
	for _, key := range theirs {
		delete(node.Annotations, key)
	}
	return node
}

// forms returns the possible formats of a change.
func (c change) forms(node string) []form {
	forms := []form{{contentType: types.MergePatchType}, {contentType: types.StrategicMergePatchType}, {contentType: types.JSONPatchType}}
	if c.value == nil || c.path[len(c.path)-1] == "managedFields" {
		return forms // not possible with server-side apply
	}
	forms = append(forms, form{types.ApplyYAMLPatchType, "force=true&fieldManager=" + reclaim.FieldManager})
	if node != asking { // it would be a conflict with the agent's own request
		forms = append(forms, form{types.ApplyYAMLPatchType, "fieldManager=" + reclaim.FieldManager})
	}
	return forms
}

// body returns the change in one of its formats.
func (c change) body(f form, node string) any {
	parts := append([]change{c}, c.more...)
	if f.contentType == types.JSONPatchType {
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
	if f.contentType == types.ApplyYAMLPatchType {
		root = map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": node}}
	}
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

// pointer writes a path as in RFC 6901.
func pointer(path []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + escape.Replace(part))
	}
	return b.String()
}

// send makes a dry run, which admission checks as any other request.
func (w *world) send(ctx context.Context, q request) (code int, body string) {
	w.Helper()
	payload, err := json.Marshal(q.body)
	w.must(err)
	url := shared.Management.URL + q.path
	if q.verb == http.MethodGet {
		payload = nil
	} else {
		url += "?dryRun=All&" + q.query
	}
	req, err := http.NewRequestWithContext(ctx, q.verb, url, bytes.NewReader(payload))
	w.must(err)
	req.Header.Set("Authorization", "Bearer "+w.tokens[q.token])
	req.Header.Set("Content-Type", "application/json")
	if q.contentType != "" {
		req.Header.Set("Content-Type", string(q.contentType))
	}
	res, err := w.client.Do(req)
	w.must(err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	w.must(err)
	return res.StatusCode, string(answer)
}

// TestThePolicyNamesEveryAnnotation compares the annotations in the policy with the agent's.
func TestThePolicyNamesEveryAnnotation(t *testing.T) {
	text := policyText(t)
	for _, key := range theirs {
		if !strings.Contains(text, "'"+key+"'") {
			t.Errorf("the policy does not know %s", key)
		}
	}
}

// TestThePolicyFailsClosed reads the policy, because no request of the matrix causes an error in its expressions.
func TestThePolicyFailsClosed(t *testing.T) {
	if !strings.Contains(policyText(t), "\n  failurePolicy: Fail\n") {
		t.Error("what the policy cannot judge is allowed")
	}
}

func policyText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(system.Repository(), "config", "reclaim-agent", "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
