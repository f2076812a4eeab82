// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A connection is a manager's client. It writes to the API server, and reads from it or, if cached, from the manager's
// cache.
type connection struct {
	m      *manager
	cached bool
}

// A write is one write of a manager.
type write struct {
	by     *manager
	verb   string
	id     id
	status bool
}

// errLost is the error of a connection that broke after the request.
var errLost = errors.New("the answer was lost")

// send executes a write, with the delays and errors of the world.
func (c connection) send(x write, carryOut func() (client.Object, error)) (client.Object, error) {
	x.by = c.m
	w := c.m.w
	if w.slow != nil {
		w.pass(w.slow(x))
	}
	defer c.m.hear()
	if w.refuse != nil {
		if err := w.refuse(x); err != nil {
			return nil, err
		}
	}
	obj, err := carryOut()
	if err == nil {
		w.wrote(x)
	}
	if w.slow != nil {
		w.pass(w.slow(x))
	}
	if err == nil && w.lose != nil && w.lose(x) {
		return nil, errLost
	}
	return obj, err
}

func (c connection) objects() objects {
	if c.cached {
		return c.m.cache
	}
	return c.m.w.api.objects
}

// unreadable is the error that the world sets for a live read.
func (c connection) unreadable(kind string) error {
	if c.cached {
		return nil
	}
	c.m.hear()
	if c.m.w.unreadable != nil {
		return c.m.w.unreadable(kind)
	}
	return nil
}

func (c connection) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	i := id{kindOf(obj), key.Namespace, key.Name}
	if err := c.unreadable(i.kind); err != nil {
		return err
	}
	have, exists := c.objects().get(i)
	if !exists {
		return apierrors.NewNotFound(resource(i), i.name)
	}
	answer(obj, have)
	return nil
}

func (c connection) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind := strings.TrimSuffix(kindOf(list), "List")
	if err := c.unreadable(kind); err != nil {
		return err
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	var found []runtime.Object
	for _, obj := range c.candidates(kind, o) {
		if o.Namespace != "" && o.Namespace != obj.GetNamespace() ||
			o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		found = append(found, obj)
	}
	if !c.cached && c.m.w.shorten != nil {
		found = c.m.w.shorten(kind, found)
	}
	return meta.SetList(list, found)
}

// candidates are the objects that a list selects from.
func (c connection) candidates(kind string, o client.ListOptions) []client.Object {
	if !c.cached || o.FieldSelector == nil {
		return inOrder(c.objects()[kind])
	}
	only := o.FieldSelector.Requirements()[0]
	return c.m.indexed(kind, only.Field, only.Value)
}

func (c connection) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return c.into(obj, write{verb: "create", id: idOf(obj)}, func() (client.Object, error) { return c.m.w.api.create(obj) })
}

func (c connection) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := client.DeleteOptions{}
	o.ApplyOptions(opts)
	i := idOf(obj)
	_, err := c.send(write{verb: "delete", id: i}, func() (client.Object, error) {
		if o.Preconditions != nil && o.Preconditions.UID != nil {
			return nil, c.m.w.api.delete(i, *o.Preconditions.UID)
		}
		return nil, c.m.w.api.delete(i, "")
	})
	return err
}

func (c connection) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(obj, patch, false)
}

func (c connection) patch(obj client.Object, patch client.Patch, status bool) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	i := idOf(obj)
	return c.into(obj, write{verb: "patch", id: i, status: status}, func() (client.Object, error) { return c.m.w.api.patch(i, data, status) })
}

// into executes a write, and copies the response to obj.
func (c connection) into(obj client.Object, x write, carryOut func() (client.Object, error)) error {
	have, err := c.send(x, carryOut)
	if err != nil {
		return err
	}
	answer(obj, have)
	return nil
}

func (c connection) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	u, err := asUnstructured(obj)
	if err != nil {
		return err
	}
	have, err := c.send(write{verb: "apply", id: idOf(u)}, func() (client.Object, error) { return c.m.w.api.apply(u) })
	if err != nil {
		return err
	}
	into := &unstructured.Unstructured{}
	answer(into, have)
	into.SetGroupVersionKind(u.GroupVersionKind())
	data, err := into.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, obj)
}

func (connection) Update(context.Context, client.Object, ...client.UpdateOption) error {
	panic("nobody updates")
}

func (connection) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	panic("nobody deletes all of a kind")
}

func (c connection) Status() client.SubResourceWriter { return statusOf{c} }

func (c connection) SubResource(string) client.SubResourceClient { panic("nobody asks for it") }

func (connection) Scheme() *runtime.Scheme { return scheme }

func (connection) RESTMapper() meta.RESTMapper { return nil }

func (connection) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, scheme)
}

func (connection) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return !reflect.TypeOf(obj).AssignableTo(nodeType), nil
}

type statusOf struct{ connection }

func (s statusOf) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.patch(obj, patch, true)
}

func (statusOf) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	panic("nobody creates a status")
}

func (statusOf) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	panic("nobody updates a status")
}

// Apply applies conditions, which are identified by their type.
func (s statusOf) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	u, err := asUnstructured(obj)
	if err != nil {
		return err
	}
	i := idOf(u)
	_, err = s.send(write{verb: "apply", id: i, status: true}, func() (client.Object, error) {
		have, exists := s.m.w.api.objects.get(i)
		if !exists {
			return nil, apierrors.NewNotFound(resource(i), i.name)
		}
		is := &unstructured.Unstructured{}
		convert(have, is)
		return s.m.w.api.patch(i, conditionsOf(is, u), true)
	})
	return err
}

// conditionsOf returns a patch that merges the applied conditions into the existing ones.
func conditionsOf(is, applied *unstructured.Unstructured) []byte {
	have, _, _ := unstructured.NestedSlice(is.Object, "status", "conditions")
	news, _, _ := unstructured.NestedSlice(applied.Object, "status", "conditions")
	for _, c := range news {
		same := func(other any) bool { return other.(map[string]any)["type"] == c.(map[string]any)["type"] }
		if at := slices.IndexFunc(have, same); at >= 0 {
			have[at] = c
		} else {
			have = append(have, c)
		}
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": have}})
	if err != nil {
		panic(err)
	}
	return data
}

func asUnstructured(obj runtime.ApplyConfiguration) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(data)
}
