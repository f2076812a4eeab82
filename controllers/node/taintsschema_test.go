// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// TestSchemaAndValidationAgree compares the API server, which has only the schema, with package validation, for lists
// of taints.
func TestSchemaAndValidationAgree(t *testing.T) {
	var vectors struct {
		Key []struct {
			Key   string
			Valid bool
		} `json:"taint_key"`
		Value []struct{ Value string } `json:"taint_value"`
	}
	b, err := os.ReadFile("../../internal/validation/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	one := func(key string, value any, effect string) map[string]any {
		return map[string]any{"key": key, "value": value, "effect": effect}
	}
	lists := [][]any{
		{},
		{one("a", nil, "NoSchedule")},
		{one("a", "", "NoExecute"), one("a", "1", "NoSchedule")},
		{one("a", "1", "NoSchedule"), one("a", "2", "NoSchedule")},
		{one("a", "1", "NoLunch")},
		{one("a", "1", "")},
		{one("", "1", "NoSchedule")},
		{one("a", "x_y", "NoSchedule")},
		{one("A.example.org/x", "", "NoSchedule")},
		{one("/a", "", "NoSchedule")},
		{one("a/", "", "NoSchedule")},
	}
	for _, key := range []string{
		"5spot.finos.org/x", "kubernetes.io/x", "node.kubernetes.io/x", "node-role.kubernetes.io/x", "node.cluster.x-k8s.io/x",
	} {
		lists = append(lists, []any{one(key, nil, "NoSchedule")})
	}
	var many []any
	for i := range 33 {
		many = append(many, one(fmt.Sprint("a", i), nil, "NoSchedule"))
	}
	lists = append(lists, many, many[1:])
	for _, n := range []int{63, 64} {
		long := fmt.Sprintf("%0*d", n, 0)
		lists = append(lists, []any{one(long, nil, "NoSchedule")}, []any{one(long+"/a", nil, "NoSchedule")}, []any{one("a", long, "NoSchedule")})
	}
	domain := ""
	for range 126 {
		domain += "a."
	}
	lists = append(lists, []any{one(domain+"a/a", nil, "NoSchedule")}, []any{one(domain+"aa/a", nil, "NoSchedule")})
	for _, v := range vectors.Key {
		lists = append(lists, []any{one(v.Key, nil, "NoSchedule")})
	}
	for _, v := range vectors.Value {
		lists = append(lists, []any{one("a", v.Value, "NoSchedule")})
	}
	w := newTaintWorld(t)
	for _, list := range lists {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.sm)
		w.Must(err)
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ScheduledMachine"))
		u.SetName("another")
		u.SetResourceVersion("")
		u.SetUID("")
		w.Must(unstructured.SetNestedSlice(u.Object, list, "spec", "nodeTaints"))
		sm := &v1alpha1.ScheduledMachine{}
		w.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, sm))
		valid := validation.ScheduledMachine(sm)
		err = w.Client.Create(t.Context(), u, client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if (err == nil) != (len(valid) == 0) {
			t.Errorf("%v: the schema says %v, validation %v", list, err, valid)
		}
	}
}
