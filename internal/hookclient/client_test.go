// SPDX-License-Identifier: Apache-2.0

package hookclient_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/hookclient"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// extension serves answers over HTTPS, and returns a registration for it.
func extension(t *testing.T, serve http.HandlerFunc) *v1alpha1.MachineDeletionHook {
	t.Helper()
	s := httptest.NewTLSServer(serve)
	t.Cleanup(s.Close)
	return &v1alpha1.MachineDeletionHook{Spec: v1alpha1.MachineDeletionHookSpec{
		ClientConfig: runtimev1.ClientConfig{
			URL:      s.URL + "/prefix",
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		},
		TimeoutSeconds: 1, Settings: map[string]string{"pool": "a"},
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
	answer, err := hookclient.Call(t.Context(), hook, request())
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

func TestWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	slow := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // The server sees an end only once it has read all.
		<-r.Context().Done()
	}
	for name, tc := range map[string]struct {
		serve  http.HandlerFunc
		change func(*runtimev1.ClientConfig)
		want   string
	}{
		"Refuses":  {serve: says(`{"status":"Failure","message":"no such pool"}`), want: "extension reports a failure: no such pool"},
		"NoStatus": {serve: says(`{}`), want: `status is "", neither Success nor Failure`},
		"NoJSON":   {serve: says(`<html>`), want: "reading answer: "},
		"Negative": {serve: says(`{"status":"Success","retryAfterSeconds":-1}`), want: "retryAfterSeconds is -1, below zero"},
		"TooLong":  {serve: says(`{"status":"Success","message":"` + strings.Repeat("x", 2<<20) + `"}`), want: "reading answer: "},
		"NotFound": {serve: http.NotFound, want: "HTTP status 404"},
		"Redirects": {serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.org/", http.StatusFound)
		}, want: "HTTP status 302"},
		"Slow":         {serve: slow, want: "deadline exceeded"},
		"Unknown":      {change: func(c *runtimev1.ClientConfig) { c.CABundle = nil }, want: "certificate"},
		"NoCA":         {change: func(c *runtimev1.ClientConfig) { c.CABundle = []byte("x") }, want: "spec.clientConfig.caBundle: no certificate"},
		"Nowhere":      {change: func(c *runtimev1.ClientConfig) { c.URL = "" }, want: "set either url or service"},
		"Plain":        {change: func(c *runtimev1.ClientConfig) { c.URL = "http://lb.test/" }, want: "no https URL"},
		"WithQuery":    {change: func(c *runtimev1.ClientConfig) { c.URL += "?a=b" }, want: "no https URL"},
		"WithPassword": {change: func(c *runtimev1.ClientConfig) { c.URL = "https://me:secret@lb.test/" }, want: "no https URL"},
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
			begin := time.Now()
			answer, err := hookclient.Call(t.Context(), hook, request())
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

// TestAService has no name server, so the connection fails: the error names where
// it was called.
func TestAService(t *testing.T) {
	hook := extension(t, says(`{"status":"Success"}`))
	hook.Spec.ClientConfig.URL = ""
	hook.Spec.ClientConfig.Service = runtimev1.ServiceReference{Namespace: "tools", Name: "lb", Path: "api", Port: new(int32(8443))}
	_, err := hookclient.Call(t.Context(), hook, request())
	if want := "https://lb.tools.svc:8443/api/hooks.5spot.finos.org/"; err == nil || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error %v, want one of %s", err, want)
	}
}

func TestTheCallerGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := hookclient.Call(ctx, extension(t, says(`{"status":"Success"}`)), request()); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
