// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"context"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// store is a cache or an API server with one Machine or nothing. It counts the reads.
type store struct {
	client.Reader

	machine *clusterv1.Machine
	asked   int
}

func (s *store) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
		sm := machineOf(nil)
		return define(crd, key, children.BootstrapOf(sm).Kind(), children.InfrastructureOf(sm).Kind())
	}
	s.asked++
	if m, ok := obj.(*clusterv1.Machine); ok && s.machine != nil {
		s.machine.DeepCopyInto(m)
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// define fills in the CustomResourceDefinition of one of kinds, if its name is name.
func define(crd *apiextensionsv1.CustomResourceDefinition, name client.ObjectKey, kinds ...schema.GroupVersionKind) error {
	for _, kind := range kinds {
		if name.Name == contract.CalculateCRDName(kind.Group, kind.Kind) {
			testenv.Definition(kind).DeepCopyInto(crd)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, name.Name)
}

func TestLiveReads(t *testing.T) {
	sm := machineOf(nil)
	present := live(t, sm)
	leaving := present.DeepCopy()
	leaving.DeletionTimestamp = new(metav1.NewTime(metav1.Unix(1, 0).Time))
	cases := map[string]struct {
		reason       string
		machine      *clusterv1.Machine
		liveFallback bool
		want         int
	}{
		"NotSure": {"A cache suffices for a decision that is made again soon.", nil, false, 0},
		"Nothing": {"Before something counts as gone, the API server says so.", nil, true, 3},
		"Present": {"Whether a Machine that lives has lost its infrastructure decides about its life.", present, true, 2},
		"Leaving": {"A departure wakes us many times, and each would ask for what is gone already.", leaving, true, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := &store{}
			r := children.Reader{Cached: &store{machine: tc.machine}, Live: server}
			if _, err := r.Read(t.Context(), sm, tc.liveFallback); err != nil {
				t.Fatal(err)
			}
			if server.asked != tc.want {
				t.Errorf("%s\nasked the API server %d times, want %d", tc.reason, server.asked, tc.want)
			}
		})
	}
}
