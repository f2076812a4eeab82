// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// TestWebhookThatIsDownDoesNotHoldUpAnEmergency installs the released webhook without a server.
func TestWebhookThatIsDownDoesNotHoldUpAnEmergency(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	c := shared.Management.Client
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	crd, err := output(plane.DefaultBin()+"/kubectl", "kustomize", "../../config/crd")
	must(err)
	must(shared.Management.InstallCRDs(ctx, crd))
	config := unserved(t)
	must(client.IgnoreNotFound(c.Delete(ctx, config.DeepCopy())))
	sm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "5spot.finos.org/v1alpha1", "kind": "ScheduledMachine",
		"metadata": map[string]any{"namespace": "default", "name": "box"},
		"spec": map[string]any{
			"clusterName":        "lab",
			"schedule":           map[string]any{"daysOfWeek": []any{"mon-sun"}, "hoursOfDay": []any{"0-23"}},
			"bootstrapSpec":      map[string]any{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "AnyConfig", "spec": map[string]any{"a": "b"}},
			"infrastructureSpec": map[string]any{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "AnyMachine"},
		},
	}}
	must(plane.Until(ctx, func(ctx context.Context) error { // until the webhook of an earlier test is gone
		if err := c.Create(ctx, sm); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}))
	must(c.Create(ctx, config))
	refusal := func(patch string) error {
		err := c.Patch(ctx, sm.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
		if err != nil && !strings.Contains(err.Error(), "failed calling webhook") {
			t.Fatalf("%s: %v", patch, err)
		}
		return err
	}
	hours := `{"spec":{"schedule":{"hoursOfDay":["9-17"]}}}`
	must(plane.Until(ctx, func(context.Context) error {
		before := sm.DeepCopy()
		if refusal(hours) == nil {
			sm = before
			hours = strings.Replace(hours, "9-17", "8-17", 1)
			return errors.New("the webhook is not called yet")
		}
		return nil
	}))
	for name, tc := range map[string]struct {
		reason, patch string
		asks          bool
	}{
		"RecordRequest":   {"An owner's request is remembered.", `{"metadata":{"annotations":{"5spot.finos.org/emergency-reclaim":"{}"}}}`, false},
		"DisableSchedule": {"The schedule is turned off, and the request forgotten.", `{"metadata":{"annotations":{"5spot.finos.org/emergency-reclaim":null}},"spec":{"schedule":{"enabled":false}}}`, false},
		"KillSwitch":      {"A person can still pull the switch.", `{"spec":{"killSwitch":true}}`, false},
		"Resume":          {"A machine is lent again, and nobody is warned.", `{"metadata":{"annotations":{"5spot.finos.org/reclaimed":"{}"}},"spec":{"schedule":{"enabled":true}}}`, false},
		"Hours":           {"What the webhook judges waits for it.", `{"spec":{"schedule":{"enabled":false,"hoursOfDay":["7"]}}}`, true},
		"NewField":        {"A field that was not there is judged.", `{"spec":{"killIfCommands":["java"]}}`, true},
		"LostField":       {"And one that goes.", `{"spec":{"bootstrapSpec":{"spec":null}}}`, true},
		"LostHours":       {"Also inside the schedule.", `{"spec":{"schedule":{"hoursOfDay":null}}}`, true},
		"OtherField":      {"A field that was there before.", `{"spec":{"priority":7}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refusal(tc.patch); (err != nil) != tc.asks {
				t.Errorf("%s\n%s: got %v, asked want %t", tc.reason, tc.patch, err, tc.asks)
			}
		})
	}
}

// unserved is the released webhook configuration with a server that does not answer. Two of the three webhooks only
// warn.
func unserved(t *testing.T) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	config := &admissionv1.ValidatingWebhookConfiguration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(only(t, "ValidatingWebhookConfiguration").Object, config, true); err != nil {
		t.Fatal(err)
	}
	const gate = "gate.loadbalancer.exp.5spot.finos.org" // It warns about every LoadBalancer.
	policies := map[string]admissionv1.FailurePolicyType{}
	for i := range config.Webhooks {
		w := &config.Webhooks[i]
		policies[w.Name] = *w.FailurePolicy
		w.ClientConfig = admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
		if len(w.MatchConditions) == 0 && w.Name != gate {
			t.Errorf("%s is asked about everything", w.Name)
		}
	}
	want := map[string]admissionv1.FailurePolicyType{
		"validation.scheduledmachine.5spot.finos.org": admissionv1.Fail, "lending.scheduledmachine.5spot.finos.org": admissionv1.Ignore,
		gate: admissionv1.Ignore,
	}
	if !maps.Equal(policies, want) {
		t.Fatalf("the webhooks are %v, want %v", policies, want)
	}
	return config
}
