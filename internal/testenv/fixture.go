// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// ErrLost is the error that CrashPoints injects into a write.
var ErrLost = apierrors.NewInternalError(errors.New("reply lost"))

// A Fail injects errors into the n-th write, from 0. With before, the write is not sent. With after, the write is sent
// and its response is lost.
type Fail func(n int) (before, after error)

// A Fixture is a test with a Server, and with the writes of its Recorded client.
type Fixture struct {
	*testing.T
	*Server
	// Writes are the writes so far: verb, kind and subresource.
	Writes []string
	// Fail is called before each write if it is not nil.
	Fail Fail
}

// Fixture returns a Fixture for a test.
func (s *Server) Fixture(t *testing.T) *Fixture {
	t.Helper()
	return &Fixture{T: t, Server: s}
}

// Must ends the test if err is not nil.
func (f *Fixture) Must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// Create creates objects.
func (f *Fixture) Create(objs ...client.Object) {
	f.Helper()
	for _, obj := range objs {
		f.Must(f.Client.Create(f.Context(), obj))
	}
}

// Read reads obj again and reports whether it exists.
func (f *Fixture) Read(obj client.Object) bool {
	f.Helper()
	err := f.Client.Get(f.Context(), client.ObjectKeyFromObject(obj), obj)
	f.Must(client.IgnoreNotFound(err))
	return err == nil
}

// Edit reads obj again, and sends the changes of change as a merge patch.
func (f *Fixture) Edit(obj client.Object, change func()) {
	f.Helper()
	f.Must(f.Client.Get(f.Context(), client.ObjectKeyFromObject(obj), obj))
	before := obj.DeepCopyObject().(client.Object)
	change()
	f.Must(f.Client.Patch(f.Context(), obj, client.MergeFrom(before)))
}

// Recorded returns a client that records writes in Writes and calls Fail. reads may replace reads; others go to the API
// server.
func (f *Fixture) Recorded(reads interceptor.Funcs) client.Client {
	reads.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		return f.write("create "+kindOf(obj), func() error { return c.Create(ctx, obj, opts...) })
	}
	reads.Delete = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
		return f.write("delete "+kindOf(obj), func() error { return c.Delete(ctx, obj, opts...) })
	}
	reads.Patch = func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
		return f.write("patch "+kindOf(obj), func() error { return c.Patch(ctx, obj, p, opts...) })
	}
	reads.Update = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
		return f.write("update "+kindOf(obj), func() error { return c.Update(ctx, obj, opts...) })
	}
	reads.Apply = func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		return f.write("apply "+kindOf(obj), func() error { return c.Apply(ctx, obj, opts...) })
	}
	reads.SubResourceCreate = func(ctx context.Context, c client.Client, sub string, obj, part client.Object, opts ...client.SubResourceCreateOption) error {
		return f.write("create "+kindOf(obj)+" "+sub, func() error { return c.SubResource(sub).Create(ctx, obj, part, opts...) })
	}
	reads.SubResourcePatch = func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		return f.write("patch "+kindOf(obj)+" "+sub, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
	}
	reads.SubResourceApply = func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
		return f.write("apply "+kindOf(obj)+" "+sub, func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
	}
	reads.List = f.byHost(reads.List)
	return interceptor.NewClient(f.Client, reads)
}

// Serialized returns a client that sends one write at a time with c, which is a client of Recorded.
func Serialized(c client.Client) client.Client {
	var mu sync.Mutex
	one := func(write func() error) error {
		mu.Lock()
		defer mu.Unlock()
		return write()
	}
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return one(func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return one(func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return one(func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, part client.Object, opts ...client.SubResourceCreateOption) error {
			return one(func() error { return c.SubResource(sub).Create(ctx, obj, part, opts...) })
		},
	})
}

// Late returns reads for Recorded that simulate a stale cache: they show obj as it is now, until refresh is called.
func (f *Fixture) Late(obj client.Object) (reads interceptor.Funcs, refresh func()) {
	f.Helper()
	key := client.ObjectKeyFromObject(obj)
	f.Must(f.Client.Get(f.Context(), key, obj))
	shown, late := obj.DeepCopyObject(), true
	reads.Get = func(ctx context.Context, c client.WithWatch, k client.ObjectKey, into client.Object, opts ...client.GetOption) error {
		if !late || k != key || reflect.TypeOf(into) != reflect.TypeOf(shown) {
			return c.Get(ctx, k, into, opts...)
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(shown.DeepCopyObject()).Elem())
		return nil
	}
	return reads, func() { late = false }
}

func (f *Fixture) write(what string, write func() error) error {
	n := len(f.Writes)
	f.Writes = append(f.Writes, what)
	if f.Fail == nil {
		return write()
	}
	before, after := f.Fail(n)
	if before != nil {
		return before
	}
	return errors.Join(write(), after)
}

// kindOf returns the kind of an object: from its kind field if it has one, else from its Go type.
func kindOf(obj any) string {
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return obj.Kind
	case interface{ GetKind() string }:
		return obj.GetKind()
	}
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// CrashPoints runs a story once without errors, then twice for each of its writes: with the write not sent, and with
// its response lost. With more than 16 such runs, -short runs only a sample. story returns the observed states
// (stations) and the number of writes. Each run must return the stations of the first one, and the first run must have
// the given number of writes.
func CrashPoints(t *testing.T, writes int, story func(*testing.T, Fail) (stations []string, writes int)) {
	t.Helper()
	want, n := story(t, nil)
	if n != writes {
		t.Fatalf("%d writes, want %d", n, writes)
	}
	points := map[string]Fail{}
	for n := range writes {
		points[fmt.Sprintf("%d-before", n)] = func(i int) (before, after error) {
			if i == n {
				before = ErrLost
			}
			return before, nil
		}
		points[fmt.Sprintf("%d-after", n)] = func(i int) (before, after error) {
			if i == n {
				after = ErrLost
			}
			return nil, after
		}
	}
	if len(points) > 16 {
		points = Sample(points)
	}
	for name, fail := range points {
		t.Run(name, func(t *testing.T) {
			got, _ := story(t, fail)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-without a crash, +with one:\n%s", diff)
			}
		})
	}
}

// Cluster returns a Cluster named lab. Its API server is unreachable.
func Cluster(namespace string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lab"}}
	c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "lab.test", Port: 6443}
	return c
}

// ScheduledMachine returns a machine of Cluster lab whose window is always open.
func ScheduledMachine(namespace, name string) *v1alpha1.ScheduledMachine {
	return &v1alpha1.ScheduledMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ScheduledMachineSpec{
			ClusterName:        "lab",
			Schedule:           v1alpha1.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: []string{"0-23"}},
			BootstrapSpec:      v1alpha1.EmbeddedObject{APIVersion: builder.BootstrapGroupVersion.String(), Kind: builder.GenericBootstrapConfigKind},
			InfrastructureSpec: v1alpha1.EmbeddedObject{APIVersion: builder.InfrastructureGroupVersion.String(), Kind: builder.GenericInfrastructureMachineKind},
		},
	}
}

// Definition returns the CustomResourceDefinition of a namespaced kind with one served version.
func Definition(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = contract.CalculateCRDName(kind.Group, kind.Kind)
	crd.Spec.Group, crd.Spec.Names.Kind, crd.Spec.Scope = kind.Group, kind.Kind, apiextensionsv1.NamespaceScoped
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: kind.Version, Served: true, Storage: true}}
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return crd
}

// Sample returns the cases that a test runs: all, or with -short a random eighth, and at least one. The name of a
// failing subtest identifies its case.
func Sample[C any](cases map[string]C) map[string]C {
	if !testing.Short() {
		return cases
	}
	sample := map[string]C{}
	for name, c := range cases { // The order of a map is random.
		sample[name] = c
		if len(sample) > len(cases)/8 {
			break
		}
	}
	return sample
}

// Shorter returns n, or few with -short.
func Shorter(n, few int) int {
	if testing.Short() {
		return few
	}
	return n
}
