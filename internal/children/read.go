// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// A Problem is a child that cannot be used, and why.
type Problem struct {
	// Field is the field of the spec that names the child, such as "bootstrapSpec".
	Field string
	// Message says what stands in the way and the way out.
	Message string
}

// A Set is what exists of a ScheduledMachine's children.
type Set struct {
	actuate.Children

	// Problems are the children that cannot be used: names that other objects have,
	// kinds that are not installed.
	Problems []Problem

	// Templates are those that were read for what is to be made.
	Templates []*unstructured.Unstructured
}

// A Reader reads children. It is safe for concurrent use.
type Reader struct {
	// Cached answers from a cache, and may be late.
	Cached client.Reader
	// Live answers from the API server.
	Live client.Reader
	// Mapper knows which kinds are installed.
	Mapper meta.RESTMapper
}

// Read returns the children of sm. What the cache does not have is looked up live
// if sure is set, so that "absent" is never the answer of a cache that is late. A
// Machine that leaves takes the other two with it, and nothing depends on whether
// they have gone before: then the cache will do for them.
func (r Reader) Read(ctx context.Context, sm *v1alpha1.ScheduledMachine, sure bool) (Set, error) {
	var s Set
	name := NamesOf(sm.Name).Machine
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: name}, machine, sure)
	switch {
	case err != nil:
		return Set{}, err
	case found && ours(machine, sm):
		s.Machine = machine
	case found:
		s.foreign("machineTemplate", MachineKind.Kind, name)
	}
	sure = sure && (s.Machine == nil || s.Machine.DeletionTimestamp.IsZero())
	kinds := kindsOf(sm, s.Machine)
	for _, c := range []struct {
		part  Part
		kinds []schema.GroupVersionKind
		into  **unstructured.Unstructured
	}{
		{BootstrapOf(sm), kinds.bootstrap, &s.Bootstrap},
		{InfrastructureOf(sm), kinds.infrastructure, &s.Infrastructure},
	} {
		obj, err := r.firstOf(ctx, &s, c.part, c.kinds, sure)
		if err != nil {
			return Set{}, err
		}
		*c.into = obj
	}
	return s, nil
}

// Machine returns the Machine of sm as the cache has it, nil if there is none.
func (r Reader) Machine(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: NamesOf(sm.Name).Machine}, machine, false)
	if err != nil || !found || !ours(machine, sm) {
		return nil, err
	}
	return machine, nil
}

type candidates struct{ bootstrap, infrastructure []schema.GroupVersionKind }

// kindsOf returns the kinds a child may be of: that which the Machine refers to,
// else that which was reported, and that of the spec. An edit of the kind must
// not lose the old object.
func kindsOf(sm *v1alpha1.ScheduledMachine, machine *clusterv1.Machine) candidates {
	c := candidates{
		bootstrap:      reported(sm.Status.BootstrapRef),
		infrastructure: reported(sm.Status.InfrastructureRef),
	}
	if machine != nil {
		c.bootstrap = referred(machine.Spec.Bootstrap.ConfigRef, c.bootstrap)
		c.infrastructure = referred(machine.Spec.InfrastructureRef, c.infrastructure)
	}
	c.bootstrap = appendKind(c.bootstrap, BootstrapOf(sm).Kind())
	c.infrastructure = appendKind(c.infrastructure, InfrastructureOf(sm).Kind())
	return c
}

func reported(ref *v1alpha1.ChildReference) []schema.GroupVersionKind {
	if ref == nil {
		return nil
	}
	return []schema.GroupVersionKind{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)}
}

// referred puts the kind that a Machine refers to first. A Machine's reference
// has no version: any served one will do.
func referred(ref clusterv1.ContractVersionedObjectReference, rest []schema.GroupVersionKind) []schema.GroupVersionKind {
	if ref.Kind == "" {
		return rest
	}
	return append([]schema.GroupVersionKind{{Group: ref.APIGroup, Kind: ref.Kind}}, rest...)
}

func appendKind(kinds []schema.GroupVersionKind, k schema.GroupVersionKind) []schema.GroupVersionKind {
	for i, have := range kinds {
		if have.GroupKind() == k.GroupKind() {
			if have.Version == "" {
				kinds[i].Version = k.Version
			}
			return kinds
		}
	}
	return append(kinds, k)
}

// firstOf returns the first object of ours among the kinds. Only the kind of the
// spec, the last, can be a problem: it is the one that is to be made.
func (r Reader) firstOf(ctx context.Context, s *Set, p Part, kinds []schema.GroupVersionKind, sure bool) (*unstructured.Unstructured, error) {
	for i, gvk := range kinds {
		last := i == len(kinds)-1
		mapping, err := r.Mapper.RESTMapping(gvk.GroupKind(), versions(gvk)...)
		if meta.IsNoMatchError(err) {
			if last {
				s.notInstalled(p.Field, gvk.GroupKind())
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking up %s: %w", gvk.GroupKind(), err)
		}
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(mapping.GroupVersionKind)
		found, err := r.get(ctx, client.ObjectKey{Namespace: p.owner.Namespace, Name: p.Name}, obj, sure)
		switch {
		case err != nil:
			return nil, err
		case found && ours(obj, p.owner):
			return obj, nil
		case found && last:
			s.foreign(p.Field, gvk.Kind, p.Name)
		}
	}
	return nil, nil
}

func versions(gvk schema.GroupVersionKind) []string {
	if gvk.Version == "" {
		return nil
	}
	return []string{gvk.Version}
}

// Look returns the object that is about to be made, if it exists already, from
// the API server. One that is not ours is a Problem of s and no object.
func (r Reader) Look(ctx context.Context, s *Set, sm *v1alpha1.ScheduledMachine, field string, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(desired.GroupVersionKind())
	switch err := r.Live.Get(ctx, client.ObjectKeyFromObject(desired), obj); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for %s %s: %w", desired.GetKind(), desired.GetName(), err)
	case !ours(obj, sm):
		s.foreign(field, desired.GetKind(), desired.GetName())
		return nil, nil
	}
	return obj, nil
}

func (r Reader) get(ctx context.Context, key client.ObjectKey, obj client.Object, sure bool) (bool, error) {
	err := r.Cached.Get(ctx, key, obj)
	if sure && apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, obj)
	}
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, key.Name, err)
	}
	return true, nil
}

func (s *Set) foreign(field, kind, name string) {
	s.Problems = append(s.Problems, Problem{field, fmt.Sprintf("%s %s exists and is not this ScheduledMachine's: it is left alone; delete it, or use another name", kind, name)})
}

func (s *Set) notInstalled(field string, kind schema.GroupKind) {
	s.Problems = append(s.Problems, Problem{field, fmt.Sprintf("kind %s is not installed: install its provider, or name another kind", kind)})
}

// ours reports whether obj is a child of sm: it carries our label, and nobody but
// sm, or the Machine of sm, controls it. The label alone is enough for an object
// that nobody controls, so that children survive a restored backup.
func ours(obj client.Object, sm *v1alpha1.ScheduledMachine) bool {
	if obj.GetLabels()[v1alpha1.ScheduledMachineLabel] != sm.Name {
		return false
	}
	ref := metav1.GetControllerOf(obj)
	if ref == nil || ref.UID == sm.UID {
		return true
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == clusterv1.GroupVersion.Group &&
		ref.Kind == MachineKind.Kind && ref.Name == NamesOf(sm.Name).Machine
}

// ParentOf returns the name of the ScheduledMachine that obj says it is a child of,
// empty if none. The label says so, because the garbage collector takes our owner
// references off in a deletion in the foreground; the controller does where
// somebody took the label off.
func ParentOf(obj client.Object) string {
	if name := obj.GetLabels()[v1alpha1.ScheduledMachineLabel]; name != "" {
		return name
	}
	if ref := metav1.GetControllerOf(obj); ref != nil && ref.Kind == "ScheduledMachine" {
		return ref.Name
	}
	return ""
}

// ControlPlaneVersion returns spec.version of the Cluster's control plane, empty
// where its kind has none or it does not exist yet.
func (r Reader) ControlPlaneVersion(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	ref := cluster.Spec.ControlPlaneRef
	mapping, err := r.Mapper.RESTMapping(schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return "", fmt.Errorf("looking up %s: %w", ref.Kind, err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	if _, err := r.get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, obj, false); err != nil {
		return "", err
	}
	version, _, err := unstructured.NestedString(obj.Object, "spec", "version")
	return version, err
}

// Existing are the bootstrap config and the infrastructure machine, as far as
// they exist.
func (s *Set) Existing() []client.Object {
	var objs []client.Object
	for _, u := range []*unstructured.Unstructured{s.Bootstrap, s.Infrastructure} {
		if u != nil {
			objs = append(objs, u)
		}
	}
	return objs
}
