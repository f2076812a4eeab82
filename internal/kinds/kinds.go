// SPDX-License-Identifier: Apache-2.0

// Package kinds answers one question: how does the API server serve a kind that
// somebody named? It reads CustomResourceDefinitions, which tell a kind that is not
// installed from one that is not served at the moment: of the first there is no object,
// of the second nobody knows. Discovery cannot tell them apart. It knows nothing about
// the objects themselves.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is wrong with a kind. Every other error says that its definition could not be
// read.
var (
	// ErrNotInstalled means that there is no such kind, and so no object of it.
	ErrNotInstalled = errors.New("not installed")
	// ErrUnusable means that no machine can refer to the kind as it was named.
	ErrUnusable = errors.New("cannot be used")
	// ErrNotServed means that the kind is installed, and not served. There may be objects.
	ErrNotServed = errors.New("not served")
)

// A Resolver looks kinds up. It is safe for concurrent use.
type Resolver struct {
	// Cached answers from a cache, and may be late.
	Cached client.Reader
	// Live answers from the API server. What the cache does not have is looked up there.
	Live client.Reader
}

// ToRead returns the version in which objects of a kind are to be read. It is the one
// in which they are stored if that is served: reading it takes no conversion webhook.
// The error is one of this package's, or says why the definition cannot be read.
func (r Resolver) ToRead(ctx context.Context, kind schema.GroupKind) (schema.GroupVersionKind, error) {
	crd, err := r.definition(ctx, kind)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	served := servedVersions(crd)
	if len(served) == 0 {
		return schema.GroupVersionKind{}, fmt.Errorf("kind %s is %w at the moment: is its provider being upgraded?", kind, ErrNotServed)
	}
	best := served[0]
	if i := slices.IndexFunc(served, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage }); i >= 0 {
		best = served[i]
	}
	return kind.WithVersion(best.Name), nil
}

// ToMake reports why no object can be made of a kind in the version that somebody
// named, nil if one can. The errors are those of ToRead.
func (r Resolver) ToMake(ctx context.Context, gvk schema.GroupVersionKind) error {
	crd, err := r.definition(ctx, gvk.GroupKind())
	if err != nil {
		return err
	}
	var names []string
	for _, v := range servedVersions(crd) {
		names = append(names, v.Name)
	}
	switch {
	case slices.Contains(names, gvk.Version):
		return nil
	case len(names) == 0:
		return fmt.Errorf("kind %s is %w at the moment: is its provider being upgraded?", gvk.GroupKind(), ErrNotServed)
	default:
		return fmt.Errorf("version %s of kind %s is %w: name one of %v in apiVersion", gvk.Version, gvk.GroupKind(), ErrNotServed, names)
	}
}

// definition returns the definition of a kind that machines can refer to.
func (r Resolver) definition(ctx context.Context, kind schema.GroupKind) (*apiextensionsv1.CustomResourceDefinition, error) {
	// Cluster API requires this form of the name of all providers.
	name := client.ObjectKey{Name: contract.CalculateCRDName(kind.Group, kind.Kind)}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := r.Cached.Get(ctx, name, crd)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, name, crd)
	}
	switch names := crd.Spec.Names; {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("kind %s is %w: install its provider, or name another kind", kind, ErrNotInstalled)
	case err != nil:
		return nil, fmt.Errorf("reading CustomResourceDefinition %s: %w", name.Name, err)
	case names.Kind != kind.Kind:
		return nil, fmt.Errorf("kind %s %w: it is spelled %s", kind, ErrUnusable, names.Kind)
	case crd.Spec.Scope != apiextensionsv1.NamespaceScoped:
		return nil, fmt.Errorf("kind %s %w: its objects are not namespaced; name the kind of a machine", kind, ErrUnusable)
	}
	return crd, nil
}

// servedVersions are the versions in which objects can be read and written now.
func servedVersions(crd *apiextensionsv1.CustomResourceDefinition) []apiextensionsv1.CustomResourceDefinitionVersion {
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if !established {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(crd.Spec.Versions), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
}

// Trimmed is a cache's transform for CustomResourceDefinitions: it drops their schemas,
// which are most of them and are not read here.
func Trimmed(obj any) (any, error) {
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return obj, nil
	}
	crd.ManagedFields, crd.Annotations = nil, nil
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		v.Schema, v.AdditionalPrinterColumns, v.Subresources = nil, nil, nil
	}
	return crd, nil
}
