// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
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
	// Machine, Bootstrap and Infrastructure are nil where none is known.
	Machine                   *clusterv1.Machine
	Bootstrap, Infrastructure *unstructured.Unstructured

	// BootstrapUnknown and InfrastructureUnknown say that nobody knows whether there is
	// one.
	BootstrapUnknown, InfrastructureUnknown bool

	// ForeignMachine says that an object which another controller owns has the name of the Machine. The
	// bootstrap config and the infrastructure machine may be in use by it.
	ForeignMachine bool
	// Problems are the children that cannot be used: names that other objects have,
	// kinds that are not installed.
	Problems []Problem

	// Unread are the children of which nobody knows whether they exist, and why: at most
	// the bootstrap config and the infrastructure machine. Unknown is never absent.
	Unread []Problem

	// Kinds are those of which children were looked for.
	Kinds []schema.GroupVersionKind

	// Templates are those that were read for what is to be made.
	Templates []*unstructured.Unstructured
}

// MachineState is what is known of the Machine. It is unknown while a Machine that another controller
// owns may use the other two children.
func (s *Set) MachineState() lifecycle.Presence {
	switch {
	case s.Machine != nil:
		return presence(s.Machine)
	case s.ForeignMachine && (s.Infrastructure != nil || s.Bootstrap != nil):
		return lifecycle.Unknown
	default:
		return lifecycle.Absent
	}
}

// BootstrapState is what is known of the bootstrap config.
func (s *Set) BootstrapState() lifecycle.Presence {
	return stateOf(s.Bootstrap, s.BootstrapUnknown)
}

// InfrastructureState is what is known of the infrastructure machine.
func (s *Set) InfrastructureState() lifecycle.Presence {
	return stateOf(s.Infrastructure, s.InfrastructureUnknown)
}

func stateOf(obj *unstructured.Unstructured, unread bool) lifecycle.Presence {
	switch {
	case obj != nil:
		return presence(obj)
	case unread:
		return lifecycle.Unknown
	default:
		return lifecycle.Absent
	}
}

func presence(obj client.Object) lifecycle.Presence {
	if obj.GetDeletionTimestamp().IsZero() {
		return lifecycle.Present
	}
	return lifecycle.Leaving
}

// readTimeout bounds the read of one object of a provider's kind. The cache waits for
// the first list of a kind, which never comes while its conversion webhook is down.
const readTimeout = 2 * time.Second

// A Reader reads children. It is safe for concurrent use.
type Reader struct {
	// Cached answers from a cache, and may be late.
	Cached client.Reader
	// Live answers from the API server.
	Live client.Reader
}

// Uncached asks the API server for everything: no answer of it is late.
func (r Reader) Uncached() Reader {
	r.Cached = r.Live
	return r
}

func (r Reader) kinds() kinds.Resolver { return kinds.Resolver(r) }

// Read returns the children of sm. What the cache does not have is looked up live
// if sure is set, so that "absent" is never the answer of a cache that is late. What a
// Machine refers to always is: each kind has a cache of its own, and the Machine would be
// replaced. One that leaves takes the other two with it, and nothing depends on whether
// they have gone before, until it waits for nothing else: then the cache will do for them.
// An object of a provider that cannot be read is Unread, and no error: its machine is
// served as far as it goes.
func (r Reader) Read(ctx context.Context, sm *v1alpha1.ScheduledMachine, sure bool) (Set, error) {
	var s Set
	name := NamesOf(sm.Name).Machine
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: name}, machine, sure)
	switch {
	case err != nil:
		return Set{}, err
	case found && isMachineOf(machine, sm):
		s.Machine = machine
	case found:
		s.ForeignMachine = true
		s.foreign("machineTemplate", MachineKind.Kind, name)
	}
	if s.Machine != nil {
		sure = s.Machine.DeletionTimestamp.IsZero() || s.Expedited()
	}
	bootstrap, infrastructure := kindsOf(sm, s.Machine)
	s.Bootstrap, s.BootstrapUnknown = r.find(ctx, &s, BootstrapOf(sm), bootstrap, sure)
	s.Infrastructure, s.InfrastructureUnknown = r.find(ctx, &s, InfrastructureOf(sm), infrastructure, sure)
	return s, nil
}

// Machine returns the Machine of sm as the cache has it, nil if there is none.
func (r Reader) Machine(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: NamesOf(sm.Name).Machine}, machine, false)
	if err != nil || !found || !isMachineOf(machine, sm) {
		return nil, err
	}
	return machine, nil
}

// kindsOf returns the kinds that a child may be of. A Machine says what it refers to;
// without one it is the kind that was reported, or that of the spec. An edit of the
// kind must not lose the old object.
func kindsOf(sm *v1alpha1.ScheduledMachine, machine *clusterv1.Machine) (bootstrap, infrastructure []schema.GroupKind) {
	bootstrap = appendKind(reported(sm.Status.BootstrapRef), BootstrapOf(sm).Kind().GroupKind())
	infrastructure = appendKind(reported(sm.Status.InfrastructureRef), InfrastructureOf(sm).Kind().GroupKind())
	if machine != nil {
		bootstrap = referred(machine.Spec.Bootstrap.ConfigRef, bootstrap)
		infrastructure = referred(machine.Spec.InfrastructureRef, infrastructure)
	}
	return bootstrap, infrastructure
}

// MayBeOf reports whether a child of sm, or what it is made from, may be of a kind.
func MayBeOf(sm *v1alpha1.ScheduledMachine, group, kind string) bool {
	kinds := slices.Concat(reported(sm.Status.BootstrapRef), reported(sm.Status.InfrastructureRef))
	for _, p := range []Part{BootstrapOf(sm), InfrastructureOf(sm)} {
		named := p.Kind().GroupKind()
		kinds = append(kinds, named, schema.GroupKind{Group: named.Group, Kind: named.Kind + clusterv1.TemplateSuffix})
	}
	return slices.Contains(kinds, schema.GroupKind{Group: group, Kind: kind})
}

func reported(ref *v1alpha1.ChildReference) []schema.GroupKind {
	if ref == nil {
		return nil
	}
	return []schema.GroupKind{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()}
}

func referred(ref clusterv1.ContractVersionedObjectReference, otherwise []schema.GroupKind) []schema.GroupKind {
	if ref.Kind == "" {
		return otherwise
	}
	return []schema.GroupKind{{Group: ref.APIGroup, Kind: ref.Kind}}
}

func appendKind(all []schema.GroupKind, kind schema.GroupKind) []schema.GroupKind {
	if slices.Contains(all, kind) {
		return all
	}
	return append(all, kind)
}

// find returns the first object of ours among the kinds, or says that nobody knows
// whether there is one.
func (r Reader) find(ctx context.Context, s *Set, p Part, among []schema.GroupKind, sure bool) (obj *unstructured.Unstructured, unread bool) {
	for _, kind := range among {
		obj, err := r.findKind(ctx, s, p, kind, sure)
		switch {
		case obj != nil:
			return obj, false
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "Reading child", "kind", kind.String(), "name", p.Name)
			s.Unread = append(s.Unread, Problem{p.Field, unreadable(kind, err)})
			unread = true
		}
	}
	return nil, unread
}

// findKind returns the object of ours of one kind, nil if there is none. Only the kind of
// the spec can be a problem, for it is the one that is to be made.
func (r Reader) findKind(ctx context.Context, s *Set, p Part, kind schema.GroupKind, sure bool) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	gvk, err := r.kinds().ToRead(ctx, kind)
	absent := errors.Is(err, kinds.ErrNotInstalled) || errors.Is(err, kinds.ErrUnusable) && s.Machine == nil
	switch {
	case absent && kind == p.Kind().GroupKind():
		s.Problems = append(s.Problems, Problem{p.Field, err.Error()})
		return nil, nil
	case absent:
		return nil, nil
	case err != nil:
		return nil, err
	}
	s.Kinds = append(s.Kinds, gvk)
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	found, err := r.get(ctx, client.ObjectKey{Namespace: p.owner.Namespace, Name: p.Name}, obj, sure)
	switch {
	case err != nil:
		return nil, err
	case found && isPartOf(obj, p.owner, s.Machine):
		return obj, nil
	case found && s.Machine != nil:
		return nil, errForeign // The Machine refers to it: that it runs is certain, and no more.
	case found && kind == p.Kind().GroupKind():
		s.foreign(p.Field, kind.Kind, p.Name)
	}
	return nil, nil
}

// errForeign reports an object of somebody else to which our Machine refers.
var errForeign = errors.New("somebody else controls the object")

// unreadable says why nobody knows whether a child exists. The same cause gives the same
// text: what an API server or a network adds to it differs each time.
func unreadable(kind schema.GroupKind, err error) string {
	switch {
	case errors.Is(err, kinds.ErrNotServed), errors.Is(err, kinds.ErrUnusable):
		return err.Error()
	case errors.Is(err, errForeign):
		return fmt.Sprintf("the object of kind %s to which the Machine refers is controlled by somebody else: find out by whom", kind)
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return fmt.Sprintf("objects of kind %s cannot be read in time: does its provider's conversion webhook answer?", kind)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("objects of kind %s cannot be read: 5-Spot lacks the permission", kind)
	default:
		return fmt.Sprintf("objects of kind %s cannot be read (%s): does its provider's conversion webhook answer?", kind, reasonOf(err))
	}
}

// reasonOf is the API server's word for an error, or ours.
func reasonOf(err error) metav1.StatusReason {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return reason
	}
	return "NoAnswer"
}

// Look returns the object that is about to be made, if it exists already, from
// the API server. One that is not ours is a Problem of s and no object.
func (r Reader) Look(ctx context.Context, s *Set, sm *v1alpha1.ScheduledMachine, field string, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(desired.GroupVersionKind())
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(desired), obj)
	ours := isPartOf
	if desired.GroupVersionKind() == MachineKind {
		ours = func(obj client.Object, sm *v1alpha1.ScheduledMachine, _ *clusterv1.Machine) bool {
			return isMachineOf(obj, sm)
		}
	}
	switch {
	case kinds.NoObject(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for %s %s: %w", desired.GetKind(), desired.GetName(), err)
	case !ours(obj, sm, s.Machine):
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
	case kinds.NoObject(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, key.Name, err)
	}
	return true, nil
}

func (s *Set) foreign(field, kind, name string) {
	s.Problems = append(s.Problems, Problem{field, fmt.Sprintf("%s %s exists but does not belong to this ScheduledMachine, and is left alone: delete it, or use another name", kind, name)})
}

// ControlPlaneVersion returns spec.version of the Cluster's control plane, empty
// where its kind has none or it does not exist yet.
func (r Reader) ControlPlaneVersion(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ref := cluster.Spec.ControlPlaneRef
	gvk, err := r.kinds().ToRead(ctx, schema.GroupKind{Group: ref.APIGroup, Kind: ref.Kind})
	if err != nil {
		return "", err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	if _, err := r.get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, obj, false); err != nil {
		return "", err
	}
	version, _, err := unstructured.NestedString(obj.Object, "spec", "version")
	return version, err
}

// Existing are the children that are known to exist.
func (s *Set) Existing() []client.Object {
	var objs []client.Object
	if s.Machine != nil {
		objs = append(objs, s.Machine)
	}
	for _, u := range []*unstructured.Unstructured{s.Infrastructure, s.Bootstrap} {
		if u != nil {
			objs = append(objs, u)
		}
	}
	return objs
}
