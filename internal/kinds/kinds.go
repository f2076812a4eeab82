// SPDX-License-Identifier: Apache-2.0

// Package kinds resolves how the API server serves a kind. It reads CustomResourceDefinitions instead of discovery,
// which cannot distinguish a kind that is not installed from one that is temporarily not served. No object exists of
// the former; the objects of the latter are unknown.
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

// The errors about a kind. Every other error means that its definition could not be read.
var (
	// ErrNotInstalled means that the kind does not exist, so no object of it does.
	ErrNotInstalled = errors.New("not installed")
	// ErrUnusable means that no machine can refer to the kind in the given form.
	ErrUnusable = errors.New("cannot be used")
	// ErrNotServed means that the kind is installed and not served. Objects may exist.
	ErrNotServed = errors.New("not served")
)

// A Resolver reads the definitions of kinds. It is safe for concurrent use.
type Resolver struct {
	// Cached reads from a cache, and may be late.
	Cached client.Reader
	// Live reads from the API server a definition that the cache does not have.
	Live client.Reader
}

// ToRead returns the version in which to read objects of a kind. It is the storage version if that is served, because
// reading it needs no conversion webhook. The error wraps an error of this package, or reports that the definition
// cannot be read.
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

// ToMake returns an error if objects of a kind cannot be created in the given version. Its errors are ToRead's.
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

// definition returns the definition of a kind that a machine can refer to.
func (r Resolver) definition(ctx context.Context, kind schema.GroupKind) (*apiextensionsv1.CustomResourceDefinition, error) {
	// Cluster API requires this name format of all providers.
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

// servedVersions returns the versions in which objects can be read and written now.
func servedVersions(crd *apiextensionsv1.CustomResourceDefinition) []apiextensionsv1.CustomResourceDefinitionVersion {
	established := slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if !established {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(crd.Spec.Versions), func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
}

// Trimmed is a cache's transform function for CustomResourceDefinitions. It drops their schemas, which are their
// largest part and are not read here.
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
