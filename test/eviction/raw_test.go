// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestWhatTheGuardIsSent posts requests of the present API server, of earlier ones, and invalid ones. The guard reports
// the error, and continues to run.
func TestWhatTheGuardIsSent(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	pod := l.protected("db", l.nodes[0])
	r := l.guard.Replicas[0]
	with := func(change func(*admissionv1.AdmissionReview)) []byte {
		review := dryRun(pod)
		change(review)
		b, err := json.Marshal(review)
		l.must(err)
		return b
	}
	object := func(obj client.Object) func(*admissionv1.AdmissionReview) {
		return func(review *admissionv1.AdmissionReview) {
			var err error
			review.Request.Object.Raw, err = json.Marshal(obj)
			l.must(err)
		}
	}
	eviction := func(ns, name string) *policyv1beta1.Eviction {
		return &policyv1beta1.Eviction{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1beta1", Kind: "Eviction"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	}
	good := with(func(*admissionv1.AdmissionReview) {})
	const plain = "application/json"
	for name, tc := range map[string]struct {
		contentType string
		body        []byte
		code        int32
		says        string
	}{
		"Good":            {plain, good, 429, wouldAsk},
		"V1beta1":         {plain, with(object(eviction(l.ns, "db"))), 429, wouldAsk},
		"V1beta1Review":   {plain, with(func(r *admissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" }), 429, wouldAsk},
		"NoNamespaceInIt": {plain, with(object(eviction("", "db"))), 429, wouldAsk},
		"NoNameInIt":      {plain, with(object(eviction("", ""))), 429, wouldAsk},
		"NamesInItOnly":   {plain, with(func(r *admissionv1.AdmissionReview) { r.Request.Namespace, r.Request.Name = "", "" }), 429, wouldAsk},
		"NoNames": {plain, with(func(r *admissionv1.AdmissionReview) {
			object(eviction("", ""))(r)
			r.Request.Namespace, r.Request.Name = "", ""
		}), 400, "names no pod"},
		"NoObject":         {plain, with(func(r *admissionv1.AdmissionReview) { r.Request.Object.Raw = nil }), 400, "has no object"},
		"NotAnEviction":    {plain, with(func(r *admissionv1.AdmissionReview) { r.Request.Object.Raw = []byte(`[1,2]`) }), 400, "reading Eviction"},
		"NoRequest":        {plain, []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), 400, ""},
		"Charset":          {"application/json; charset=utf-8", good, 400, "contentType=application/json; charset=utf-8"},
		"ContentType":      {"text/plain", good, 400, "contentType=text/plain"},
		"NoContentType":    {"", good, 400, "contentType="},
		"Garbage":          {plain, []byte("\x00\xff{{{"), 400, ""},
		"Nothing":          {plain, nil, 400, ""},
		"Null":             {plain, []byte("null"), 400, ""},
		"OtherKind":        {plain, []byte(`{"apiVersion":"v1","kind":"Pod"}`), 400, ""},
		"Huge":             {plain, append(good[:len(good)-1:len(good)-1], append([]byte(`,"x":"`+strings.Repeat("x", 8<<20)), '"', '}')...), 413, ""},
		"Deep":             {plain, bytes.Repeat([]byte(`{"request":`), 200_000), 400, ""},
		"AnotherOperation": {plain, with(func(r *admissionv1.AdmissionReview) { r.Request.Operation = admissionv1.Delete }), 429, wouldAsk},
	} {
		status, body, err := post(l.ctx(), r, tc.contentType, tc.body)
		answer := &admissionv1.AdmissionReview{}
		if err == nil {
			err = json.Unmarshal(body, answer)
		}
		if status != http.StatusOK || err != nil || answer.Response == nil || answer.Response.Result == nil {
			t.Errorf("%s: want an AdmissionReview, got %d: %v: %.300s", name, status, err, body)
			continue
		}
		if got := answer.Response; got.Allowed || got.Result.Code != tc.code || !strings.Contains(got.Result.Message, tc.says) {
			t.Errorf("%s: got %t %d %q, want %d %q", name, got.Allowed, got.Result.Code, got.Result.Message, tc.code, tc.says)
		}
	}
	res, err := untrusting.Get("https://" + r.Address + "/eviction")
	l.must(err)
	_ = res.Body.Close()
	if r.PID() == 0 || strings.Contains(r.LogTail(10_000), "panic") {
		t.Errorf("the guard must not panic:\n%s", r.LogTail(20))
	}
	// The guard also decides on an eviction through the older API.
	out, err := l.KubectlInput(l.ctx(), `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"db"}}`,
		"create", "--raw", "/api/v1/namespaces/"+l.ns+"/pods/db/eviction", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), asked) && !strings.Contains(err.Error(), context.DeadlineExceeded.Error()) {
		t.Errorf("an Eviction without a namespace: %v, %s", err, out)
	}
}
