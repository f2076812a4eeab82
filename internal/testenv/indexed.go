// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Indexed reads as the manager's cache does that has an index. All tests of a package share
// one API server: a list by the index is of the namespaces that this test made.
func (f *Fixture) Indexed(c client.Reader, field string, keys client.IndexerFunc) client.Reader {
	return indexed{c, f, field, keys}
}

type indexed struct {
	client.Reader
	fixture *Fixture
	field   string
	keys    client.IndexerFunc
}

// List lists what the index has for one key, or what there is without one.
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
	var have []runtime.Object
	for _, namespace := range i.fixture.namespacesOf(i.fixture.T) {
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
