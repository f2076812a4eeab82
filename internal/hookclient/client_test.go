// SPDX-License-Identifier: Apache-2.0

package hookclient_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// extension starts an HTTPS server, and returns a registration for it.
func extension(t *testing.T, serve http.HandlerFunc) *v1alpha1.MachineDeletionHook {
	t.Helper()
	s := httptest.NewTLSServer(serve)
	t.Cleanup(s.Close)
	return &v1alpha1.MachineDeletionHook{ObjectMeta: metav1.ObjectMeta{UID: "lb"}, Spec: v1alpha1.MachineDeletionHookSpec{
		ClientConfig: runtimev1.ClientConfig{
			URL:      s.URL + "/prefix",
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		},
		TimeoutSeconds: 30, Settings: map[string]string{"pool": "a"},
	}}
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func request() *hooksv1.BeforeMachineDeleteRequest {
	req := &hooksv1.BeforeMachineDeleteRequest{Phase: hooksv1.BeforeDrain, Trigger: hooksv1.TriggerSchedule, ScheduledMachine: "box"}
	req.Machine.Name = "box-machine"
	return req
}

func TestCall(t *testing.T) {
	var got hooksv1.BeforeMachineDeleteRequest
	hook := extension(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/prefix/hooks.5spot.finos.org/v1alpha1/beforemachinedelete/before-machine-delete"; r.URL.Path != want || r.Method != http.MethodPost {
			t.Errorf("%s %s, want POST %s", r.Method, r.URL.Path, want)
		}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		says(`{"status":"Success","message":"3 connections","retryAfterSeconds":7,"skipDrain":true,"unknown":1}`)(w, r)
	})
	answer, err := new(hookclient.Client).Call(t.Context(), hook, request())
	if err != nil {
		t.Fatal(err)
	}
	if answer.RetryAfterSeconds != 7 || answer.Message != "3 connections" || !answer.SkipDrain || answer.SkipVolumeDetachWait {
		t.Errorf("answer %+v", answer)
	}
	if got.Machine.Name != "box-machine" || got.Phase != hooksv1.BeforeDrain || got.Settings["pool"] != "a" || got.Kind != "BeforeMachineDeleteRequest" {
		t.Errorf("the extension was asked %+v", got)
	}
}

// TestWhatAnExtensionSays checks messages, which people read next to messages of other extensions.
func TestWhatAnExtensionSays(t *testing.T) {
	for name, tc := range map[string]struct{ status, message, want string }{
		"Controls":  {"Success", `\u001b[31mred\u202e\u200b`, "[31mred"},
		"Lines":     {"Success", `a\nother: done\u2028b`, "a other: done b"},
		"TooLong":   {"Success", strings.Repeat("x", 2000), strings.Repeat("x", 1020) + " …"},
		"AsFailure": {"Failure", `a\nb\u001b`, "extension reports a failure: a b"},
	} {
		hook := extension(t, says(`{"status":"`+tc.status+`","message":"`+tc.message+`"}`))
		answer, err := new(hookclient.Client).Call(t.Context(), hook, request())
		var got string
		if err == nil {
			got = answer.Message
		} else {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	t.Parallel()
	slow := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // The server detects the end of the connection only after it has read everything.
		<-r.Context().Done()
	}
	for name, tc := range map[string]struct {
		serve  http.HandlerFunc
		change func(*runtimev1.ClientConfig)
		want   string
	}{
		"Refuses":  {serve: says(`{"status":"Failure","message":"no such pool"}`), want: "extension reports a failure: no such pool"},
		"NoStatus": {serve: says(`{}`), want: `status is "", neither Success nor Failure`},
		"NoJSON":   {serve: says(`<html>`), want: "answer is not a BeforeMachineDeleteResponse in JSON"},
		"Negative": {serve: says(`{"status":"Success","retryAfterSeconds":-1}`), want: "retryAfterSeconds is -1, must not be negative"},
		"TooLong":  {serve: says(`{"status":"Success","message":"` + strings.Repeat("x", 2<<20) + `"}`), want: "answer has more than 65536 bytes"},
		"NotFound": {serve: http.NotFound, want: "HTTP status 404"},
		"Redirects": {serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.org/", http.StatusFound)
		}, want: "HTTP status 302"},
		"Breaks": {serve: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			slow(w, r)
		}, want: "HTTP status 500"},
		"Slow":         {serve: slow, want: "no answer within spec.timeoutSeconds 1"},
		"Unknown":      {change: func(c *runtimev1.ClientConfig) { c.CABundle = nil }, want: "extension's certificate is signed by an authority that spec.clientConfig.caBundle does not contain"},
		"NoCA":         {change: func(c *runtimev1.ClientConfig) { c.CABundle = []byte("x") }, want: "spec.clientConfig.caBundle: no certificate"},
		"Nowhere":      {change: func(c *runtimev1.ClientConfig) { c.URL = "" }, want: "set either url or service"},
		"Plain":        {change: func(c *runtimev1.ClientConfig) { c.URL = "http://lb.test/" }, want: "not an https URL"},
		"WithQuery":    {change: func(c *runtimev1.ClientConfig) { c.URL += "?a=b" }, want: "not an https URL"},
		"WithPassword": {change: func(c *runtimev1.ClientConfig) { c.URL = "https://me:secret@lb.test/" }, want: "not an https URL"},
		"Both":         {change: func(c *runtimev1.ClientConfig) { c.Service = runtimev1.ServiceReference{Namespace: "a", Name: "b"} }, want: "set either url or service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.serve == nil {
				tc.serve = says(`{"status":"Success"}`)
			}
			hook := extension(t, tc.serve)
			if tc.change != nil {
				tc.change(&hook.Spec.ClientConfig)
			}
			if name == "Slow" {
				hook.Spec.TimeoutSeconds = 1
			}
			begin := time.Now()
			answer, err := new(hookclient.Client).Call(t.Context(), hook, request())
			if err == nil || !strings.Contains(err.Error(), tc.want) || answer != nil {
				t.Errorf("answer %v, error %v, want %q", answer, err, tc.want)
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("spec.timeoutSeconds is 1, and it took %v", took)
			}
			if name == "Refuses" && !errors.Is(err, hookclient.ErrRefused) {
				t.Errorf("%v is not ErrRefused", err)
			}
		})
	}
}

// TestAService runs without a name server, so the connection fails. The cause of the error has the address.
func TestAService(t *testing.T) {
	hook := extension(t, says(`{"status":"Success"}`))
	hook.Spec.ClientConfig.URL = ""
	hook.Spec.ClientConfig.Service = runtimev1.ServiceReference{Namespace: "tools", Name: "lb", Path: "api", Port: new(int32(8443))}
	hook.Spec.TimeoutSeconds = 1
	_, err := new(hookclient.Client).Call(t.Context(), hook, request())
	called, ok := errors.AsType[*url.Error](err)
	if want := "https://lb.tools.svc:8443/api/hooks.5spot.finos.org/"; !ok || !strings.HasPrefix(called.URL, want) {
		t.Errorf("error %v, want one of %s", err, want)
	}
}

func TestTheCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := new(hookclient.Client).Call(ctx, extension(t, says(`{"status":"Success"}`)), request()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
