// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// untrusting is a client that accepts the certificate of any server.
var untrusting = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}

// review is the API server's admission review for the eviction of a pod.
func review(pod *corev1.Pod) *admissionv1.AdmissionReview {
	e := fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%q,"name":%q}}`, pod.Namespace, pod.Name)
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "00000000-0000-0000-0000-000000000001", Kind: metav1.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, SubResource: "eviction",
			Namespace: pod.Namespace, Name: pod.Name, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: e},
		},
	}
}

// dryRun is a review that must cause no write.
func dryRun(pod *corev1.Pod) *admissionv1.AdmissionReview {
	r := review(pod)
	r.Request.DryRun = new(true)
	return r
}

// sendReview sends a review to one replica.
func sendReview(ctx context.Context, r *system.GuardReplica, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionResponse, error) {
	b, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	code, body, err := post(ctx, r, "application/json", b)
	if err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("%d: %w: %s", code, err, body)
	}
	answer := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, answer); err != nil || answer.Response == nil {
		return nil, fmt.Errorf("%w: %s", err, body)
	}
	return answer.Response, nil
}

func post(ctx context.Context, r *system.GuardReplica, contentType string, body []byte) (code int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.Address+"/eviction", bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := untrusting.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	return res.StatusCode, answer, err
}

func eachItem(list client.ObjectList, f func(client.Object)) error {
	return meta.EachListItem(list, func(obj runtime.Object) error {
		o, ok := obj.(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object", obj)
		}
		f(o)
		return nil
	})
}
