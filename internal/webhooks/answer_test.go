// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

const (
	review = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u1","operation":"CREATE","object":`
	object = `{"apiVersion":"5spot.finos.org/v1alpha1","kind":"ScheduledMachine","metadata":{"name":"box"},"spec":{"clusterName":"lab",` +
		`"schedule":{"daysOfWeek":["mon"],"hoursOfDay":["9"]},"bootstrapSpec":{"apiVersion":"bootstrap.cluster.x-k8s.io/v1beta2","kind":"KubeadmConfig"},` +
		`"infrastructureSpec":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DevMachine","spec":{"x":`
)

// post sends an AdmissionReview as an API server does.
func post(t *testing.T, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hook().Handler(scheme).ServeHTTP(w, r)
	got := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	return got.Response
}

func nested(depth int) string {
	return review + object + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}}}}}}"
}

// TestDeeplyNestedObjectsAreRejectedWithTheirUID expects the UID of the request in the response. With another UID, an
// API server does not report the error.
func TestDeeplyNestedObjectsAreRejectedWithTheirUID(t *testing.T) {
	for depth, allowed := range map[int]bool{1: true, 9_000: true, 9_994: true, 9_995: false, 20_000: false} {
		got := post(t, nested(depth))
		if got.UID != "u1" || got.Allowed != allowed || !allowed && !strings.Contains(got.Result.Message, "nested too deeply") {
			t.Errorf("%d levels: got UID %q, allowed %t, %v", depth, got.UID, got.Allowed, got.Result)
		}
	}
}

func TestInvalidReviewsAreRejected(t *testing.T) {
	for _, body := range []string{"", "x", "{", "[]", `{"request":[]}`, `{"request":{"object":`, `{"request":{"uid":{}}}`, nested(1) + "x", strings.Repeat("[", 20_000), strings.Repeat(" ", 8<<20)} {
		if got := post(t, body); got.Allowed {
			t.Errorf("%.80q is allowed", body)
		}
	}
}
