// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexed returns a reader that supports lists by an index, like the manager's cache. All tests of a package share one
// API server, so that such a list has only the namespaces of this test.
func (f *Fixture) Indexed(c client.Reader, field string, keys client.IndexerFunc) client.Reader {
	return indexed{c, f, field, keys}
}

type indexed struct {
	client.Reader
	fixture *Fixture
	field   string
	keys    client.IndexerFunc
}

// List lists by the index if opts has a field selector, else from the API server.
func (i indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.FieldSelector == nil {
		return i.Reader.List(ctx, list, opts...)
	}
	key, found := o.FieldSelector.RequiresExactMatch(i.field)
	if !found {
		return fmt.Errorf("there is no index for %s", o.FieldSelector)
	}
	namespaces := i.fixture.namespacesOf(i.fixture.T)
	if o.Namespace != "" {
		namespaces = []string{o.Namespace}
	}
	var have []runtime.Object
	for _, namespace := range namespaces {
		if err := i.Reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		all, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		for _, obj := range all {
			if o, ok := obj.(client.Object); ok && slices.Contains(i.keys(o), key) {
				have = append(have, obj)
			}
		}
	}
	return meta.SetList(list, have)
}

// byHost supports lists by Cluster API's indexes of Machines, like the manager's cache. It passes all other lists to
// otherwise.
func (f *Fixture) byHost(otherwise listFunc) listFunc {
	fields := map[string]func(*clusterv1.Machine) string{
		index.MachineNodeNameField:   func(m *clusterv1.Machine) string { return m.Status.NodeRef.Name },
		index.MachineProviderIDField: func(m *clusterv1.Machine) string { return m.Spec.ProviderID },
	}
	if otherwise == nil {
		otherwise = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.List(ctx, list, opts...)
		}
	}
	return func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		var o client.ListOptions
		o.ApplyOptions(opts)
		machines, ok := list.(*clusterv1.MachineList)
		if !ok || o.FieldSelector == nil {
			return otherwise(ctx, c, list, opts...)
		}
		for field, of := range fields {
			if value, found := o.FieldSelector.RequiresExactMatch(field); found {
				err := c.List(ctx, machines, client.InNamespace(o.Namespace))
				machines.Items = slices.DeleteFunc(machines.Items, func(m clusterv1.Machine) bool { return of(&m) != value })
				return err
			}
		}
		return otherwise(ctx, c, list, opts...)
	}
}

type listFunc = func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error
