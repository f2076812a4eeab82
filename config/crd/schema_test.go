// SPDX-License-Identifier: Apache-2.0

// Package crd_test answers one question: does the schema refuse what package validation
// refuses, and nothing that was stored before?
package crd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

var server *testenv.Server

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, func(s *testenv.Server) { server = s }))
}

// changes are by name what people write.
func changes(t *testing.T) map[string]func(*v1alpha1.ScheduledMachine) {
	t.Helper()
	all := map[string]func(*v1alpha1.ScheduledMachine){"Good": func(*v1alpha1.ScheduledMachine) {}}
	for _, kind := range []string{
		"DevMachine", "KubeadmConfig", "devMachine", "kubeadmConfig", "List", "DevMachineList", "KubeadmConfigList", "Machine", "Config", "DevMachineTemplate",
		"KubeadmConfigTemplate", "MachineTemplate", "ConfigTemplate", "FakeClusterIdentity", "JoinTokenRequest", "Dev/Machine", "Dev.Machine", "D-9Machine", "", "Machine\n",
	} {
		all["inline bootstrap "+kind] = func(m *v1alpha1.ScheduledMachine) { m.Spec.BootstrapSpec.Kind = kind }
		all["inline infrastructure "+kind] = func(m *v1alpha1.ScheduledMachine) { m.Spec.InfrastructureSpec.Kind = kind }
		all["template of bootstrap "+kind] = func(m *v1alpha1.ScheduledMachine) {
			m.Spec.BootstrapTemplateRef = v1alpha1.TemplateReference{APIVersion: m.Spec.BootstrapSpec.APIVersion, Kind: kind, Name: "x"}
			m.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{}
		}
		all["template of infrastructure "+kind] = func(m *v1alpha1.ScheduledMachine) {
			m.Spec.InfrastructureTemplateRef = v1alpha1.TemplateReference{APIVersion: m.Spec.InfrastructureSpec.APIVersion, Kind: kind, Name: "x"}
			m.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{}
		}
	}
	var vectors struct {
		TemplateKey []struct{ Key string } `json:"template_key"`
	}
	b, err := os.ReadFile("../../internal/validation/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors.TemplateKey {
		all["label "+v.Key] = func(m *v1alpha1.ScheduledMachine) {
			m.Spec.MachineTemplate.Labels = map[string]string{"a": "", v.Key: "x"}
		}
		all["annotation "+v.Key] = func(m *v1alpha1.ScheduledMachine) {
			m.Spec.MachineTemplate.Annotations = map[string]string{"a": "", v.Key: "x"}
		}
	}
	return all
}

// TestSchemaAndValidationAgree compares with the API server, which applies the schema only.
func TestSchemaAndValidationAgree(t *testing.T) {
	namespace := server.Namespace(t)
	refused := 0
	for name, change := range changes(t) {
		sm := testenv.ScheduledMachine(namespace, "box")
		change(sm)
		errs := validation.ScheduledMachine(sm)
		err := server.Client.Create(t.Context(), sm, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if err != nil {
			refused++
		}
		if (err == nil) != (len(errs) == 0) {
			t.Errorf("%s: the schema says %v, validation %v", name, err, errs)
		}
	}
	if refused < 60 {
		t.Errorf("the schema refused %d, which is too few to say anything", refused)
	}
}

// TestWhatWasStoredBeforeARuleCanBeGivenBack stores what the schema refuses by now, and
// writes to it what an owner, a person and the controllers write.
func TestWhatWasStoredBeforeARuleCanBeGivenBack(t *testing.T) {
	namespace := server.Namespace(t)
	var stored []*v1alpha1.ScheduledMachine
	withoutRules(t, func() {
		for _, change := range changes(t) {
			sm := testenv.ScheduledMachine(namespace, fmt.Sprint("box", len(stored)))
			if change(sm); len(validation.ScheduledMachine(sm)) == 0 {
				continue
			}
			if err := server.Client.Create(t.Context(), sm); err == nil {
				stored = append(stored, sm)
			} else if !apierrors.IsInvalid(err) {
				t.Fatal(err)
			}
		}
	})
	if len(stored) < 60 {
		t.Fatalf("%d objects are stored, which are too few to say anything", len(stored))
	}
	for _, sm := range stored {
		for what, patch := range map[string]string{
			"remember":    `{"metadata":{"annotations":{"5spot.finos.org/emergency-reclaim":"{}"}}}`,
			"finalizer":   `{"metadata":{"finalizers":["5spot.finos.org/scheduledmachine"],"labels":{"cluster.x-k8s.io/cluster-name":"lab"}}}`,
			"disarm":      `{"metadata":{"annotations":{"5spot.finos.org/emergency-reclaim":null}},"spec":{"schedule":{"enabled":false}}}`,
			"kill switch": `{"spec":{"killSwitch":true}}`,
			"priority":    `{"spec":{"priority":7}}`,
		} {
			if err := server.Client.Patch(t.Context(), sm.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Errorf("%s of %+v: %v", what, sm.Spec, err)
			}
		}
		status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"EmergencyRemove"}}`))
		if err := server.Client.Status().Patch(t.Context(), sm.DeepCopy(), status); err != nil {
			t.Errorf("status of %+v: %v", sm.Spec, err)
		}
	}
}

// withoutRules runs do while the API server has no rules in CEL.
func withoutRules(t *testing.T, do func()) {
	t.Helper()
	key := client.ObjectKey{Name: "scheduledmachines.5spot.finos.org"}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := server.Client.Get(t.Context(), key, crd); err != nil {
		t.Fatal(err)
	}
	rules := crd.DeepCopy().Object["spec"]
	drop(crd.Object, "x-kubernetes-validations")
	apply(t, crd, true)
	do()
	if err := server.Client.Get(t.Context(), key, crd); err != nil {
		t.Fatal(err)
	}
	crd.Object["spec"] = rules
	apply(t, crd, false)
}

// apply updates the CRD and returns when the API server goes by it.
func apply(t *testing.T, crd *unstructured.Unstructured, allows bool) {
	t.Helper()
	if err := server.Client.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		sm := testenv.ScheduledMachine("default", "asked")
		sm.Spec.InfrastructureSpec.Kind = "List"
		err := server.Client.Create(ctx, sm, client.DryRunAll)
		return (err == nil) == allows, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// drop removes a key wherever it is.
func drop(object any, key string) {
	switch object := object.(type) {
	case map[string]any:
		delete(object, key)
		for _, v := range object {
			drop(v, key)
		}
	case []any:
		for _, v := range object {
			drop(v, key)
		}
	}
}
