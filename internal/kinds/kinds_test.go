// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

const group = "infrastructure.cluster.x-k8s.io"

// store is a cache with one definition, or with an error.
type store struct {
	client.Reader

	crd *apiextensionsv1.CustomResourceDefinition
	err error
}

func (s store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch {
	case s.err != nil:
		return s.err
	case s.crd == nil || key.Name != s.crd.Name:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	s.crd.DeepCopyInto(obj.(*apiextensionsv1.CustomResourceDefinition))
	return nil
}

// deskMachines is the definition of DeskMachine: v1beta1 is stored, and both versions
// are served.
func deskMachines(change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "deskmachines." + group
	crd.Spec.Group, crd.Spec.Scope, crd.Spec.Names.Kind = group, apiextensionsv1.NamespaceScoped, "DeskMachine"
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v1beta2", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{}},
		{Name: "v1beta1", Served: true, Storage: true},
	}
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	if change != nil {
		change(crd)
	}
	return crd
}

func TestResolver(t *testing.T) {
	type definition = apiextensionsv1.CustomResourceDefinition
	errDown := errors.New("connection refused")
	cases := map[string]struct {
		reason   string
		kind     string
		change   func(*definition)
		err      error
		toRead   string // version, if it is served
		wantRead error
		wantMake error // of v1beta2
		says     string
	}{
		"Served":        {"What is stored is read without a conversion webhook.", "DeskMachine", nil, nil, "v1beta1", nil, nil, ""},
		"NotInstalled":  {"There is no object of it.", "LabMachine", nil, nil, "", kinds.ErrNotInstalled, kinds.ErrNotInstalled, "LabMachine.infrastructure.cluster.x-k8s.io"},
		"List":          {"It is no kind of its own, and no list of it is ever complete.", "DeskMachineList", nil, nil, "", kinds.ErrNotInstalled, kinds.ErrNotInstalled, ""},
		"LowerCase":     {"The API server knows no kind of that spelling.", "deskmachine", nil, nil, "", kinds.ErrUnusable, kinds.ErrUnusable, "spelled DeskMachine"},
		"ClusterScoped": {"It is nobody's machine.", "DeskMachine", func(d *definition) { d.Spec.Scope = apiextensionsv1.ClusterScoped }, nil, "", kinds.ErrUnusable, kinds.ErrUnusable, "not namespaced"},
		"StoredNotServed": {
			"Any served version will do for reading.", "DeskMachine",
			func(d *definition) { d.Spec.Versions[1].Served = false }, nil, "v1beta2", nil, nil, "",
		},
		"VersionNotServed": {
			"What is made is made in the version that somebody named.", "DeskMachine",
			func(d *definition) { d.Spec.Versions[0].Served = false }, nil, "v1beta1", nil, kinds.ErrNotServed, "name one of [v1beta1]",
		},
		"NothingServed": {
			"There may be objects.", "DeskMachine",
			func(d *definition) { d.Spec.Versions[0].Served, d.Spec.Versions[1].Served = false, false }, nil, "", kinds.ErrNotServed, kinds.ErrNotServed, "",
		},
		"NotEstablished": {
			"The API server has not begun to serve it.", "DeskMachine",
			func(d *definition) { d.Status.Conditions = nil }, nil, "", kinds.ErrNotServed, kinds.ErrNotServed, "",
		},
		"Unreadable": {"Nobody knows.", "DeskMachine", nil, errDown, "", errDown, errDown, "deskmachines." + group},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := store{crd: deskMachines(tc.change), err: tc.err}
			r := kinds.Resolver{Cached: s, Live: s}
			gvk, err := r.ToRead(t.Context(), schema.GroupKind{Group: group, Kind: tc.kind})
			if gvk.Version != tc.toRead || !errors.Is(err, tc.wantRead) {
				t.Errorf("%s\nToRead = %v, %v; want %s, %v", tc.reason, gvk, err, tc.toRead, tc.wantRead)
			}
			err = r.ToMake(t.Context(), schema.GroupVersionKind{Group: group, Version: "v1beta2", Kind: tc.kind})
			if !errors.Is(err, tc.wantMake) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s\nToMake = %v; want %v, with %q", tc.reason, err, tc.wantMake, tc.says)
			}
		})
	}
}

func TestACacheThatIsLateHidesNoKind(t *testing.T) {
	r := kinds.Resolver{Cached: store{}, Live: store{crd: deskMachines(nil)}}
	if _, err := r.ToRead(t.Context(), schema.GroupKind{Group: group, Kind: "DeskMachine"}); err != nil {
		t.Error(err)
	}
}

func TestTrimmedKeepsWhatIsRead(t *testing.T) {
	got, err := kinds.Trimmed(deskMachines(nil))
	if err != nil {
		t.Fatal(err)
	}
	crd := got.(*apiextensionsv1.CustomResourceDefinition)
	if crd.Spec.Versions[0].Schema != nil {
		t.Error("schemas are most of a definition, and are not read")
	}
	s := store{crd: crd}
	if _, err := (kinds.Resolver{Cached: s, Live: s}).ToRead(t.Context(), schema.GroupKind{Group: group, Kind: "DeskMachine"}); err != nil {
		t.Error(err)
	}
}
