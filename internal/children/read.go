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
	// Message describes the cause and what to do.
	Message string
}

// A Set has the existing children of a ScheduledMachine.
type Set struct {
	// Machine, Bootstrap and Infrastructure are nil if they do not exist or are unknown.
	Machine                   *clusterv1.Machine
	Bootstrap, Infrastructure *unstructured.Unstructured

	// BootstrapUnknown and InfrastructureUnknown report that the object could not be read.
	BootstrapUnknown, InfrastructureUnknown bool

	// ForeignMachine reports that an object of another controller has the name of the Machine. It may use the
	// bootstrap config and the infrastructure machine.
	ForeignMachine bool
	// Problems are the children that cannot be used: other objects have their names, or their kinds are not
	// installed.
	Problems []Problem

	// Unread are the children that could not be read, and why: at most the bootstrap config and the
	// infrastructure machine. Unknown does not mean absent.
	Unread []Problem

	// Kinds are the kinds of the children that were read.
	Kinds []schema.GroupVersionKind

	// Templates are the templates that were read.
	Templates []*unstructured.Unstructured
}

// MachineState returns the state of the Machine. It is Unknown while a Machine of another controller may use
// the other two children.
func (s *Set) MachineState() lifecycle.Presence {
	switch {
	case s.Machine != nil:
		return PresenceOf(s.Machine)
	case s.ForeignMachine && (s.Infrastructure != nil || s.Bootstrap != nil):
		return lifecycle.Unknown
	default:
		return lifecycle.Absent
	}
}

// BootstrapState returns the state of the bootstrap config.
func (s *Set) BootstrapState() lifecycle.Presence {
	return stateOf(s.Bootstrap, s.BootstrapUnknown)
}

// InfrastructureState returns the state of the infrastructure machine.
func (s *Set) InfrastructureState() lifecycle.Presence {
	return stateOf(s.Infrastructure, s.InfrastructureUnknown)
}

func stateOf(obj *unstructured.Unstructured, unread bool) lifecycle.Presence {
	switch {
	case obj != nil:
		return PresenceOf(obj)
	case unread:
		return lifecycle.Unknown
	default:
		return lifecycle.Absent
	}
}

// PresenceOf returns the state of an existing object.
func PresenceOf(obj client.Object) lifecycle.Presence {
	if obj.GetDeletionTimestamp().IsZero() {
		return lifecycle.Present
	}
	return lifecycle.Leaving
}

// readTimeout is the timeout for a read of one provider object. The cache waits for the first list of a kind,
// which fails while the conversion webhook of that kind is down.
const readTimeout = 2 * time.Second

// A Reader reads children. It is safe for concurrent use.
type Reader struct {
	// Cached reads from a cache, which may be stale.
	Cached client.Reader
	// Live reads from the API server.
	Live client.Reader
}

// Uncached returns a Reader that reads everything live.
func (r Reader) Uncached() Reader {
	r.Cached = r.Live
	return r
}

func (r Reader) kinds() kinds.Resolver { return kinds.Resolver(r) }

// Read returns the children of sm. If sure is set, it reads a child that the cache lacks live, so that a stale
// cache never makes a child absent.
//
// It always does so for the objects to which a Machine refers. Each kind has its own cache, and a missing
// object would cause a replacement. For a Machine that is being deleted, it does so only if the Machine waits
// for nothing else. Before that, no decision depends on the other two objects.
//
// A provider object that cannot be read is in Unread and is not an error: the machine is served as far as
// possible.
func (r Reader) Read(ctx context.Context, sm *v1alpha1.ScheduledMachine, liveFallback bool) (Set, error) {
	var s Set
	name := NamesOf(sm.Name).Machine
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: name}, machine, liveFallback)
	switch {
	case err != nil:
		return Set{}, err
	case found && isMachineOf(machine, sm):
		s.Machine = machine
	case found:
		s.ForeignMachine = true
		s.foreign("machineTemplate", MachineKind.Kind, name)
	}
	var refs clusterv1.MachineSpec
	if s.Machine != nil {
		refs = s.Machine.Spec
		liveFallback = s.Machine.DeletionTimestamp.IsZero() || s.Expedited()
	}
	p, ref := BootstrapOf(sm), refs.Bootstrap.ConfigRef
	s.Bootstrap, s.BootstrapUnknown = r.find(ctx, &s, p, kindsOf(p, ref, sm.Status.BootstrapRef), liveFallback)
	p, ref = InfrastructureOf(sm), refs.InfrastructureRef
	s.Infrastructure, s.InfrastructureUnknown = r.find(ctx, &s, p, kindsOf(p, ref, sm.Status.InfrastructureRef), liveFallback)
	return s, nil
}

// Machine returns the Machine of sm from the cache, nil if there is none.
func (r Reader) Machine(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	found, err := r.get(ctx, client.ObjectKey{Namespace: sm.Namespace, Name: NamesOf(sm.Name).Machine}, machine, false)
	if err != nil || !found || !isMachineOf(machine, sm) {
		return nil, err
	}
	return machine, nil
}

// kindsOf returns the possible kinds of a child. The reference of the Machine has precedence. Without a
// Machine they are the kind in the status and the kind in the spec. After an edit of the kind, the old object
// must still be found.
func kindsOf(p Part, ref clusterv1.ContractVersionedObjectReference, status *v1alpha1.ChildReference) []schema.GroupKind {
	if ref.Kind != "" {
		return []schema.GroupKind{{Group: ref.APIGroup, Kind: ref.Kind}}
	}
	possible := reported(status)
	if kind := p.Kind().GroupKind(); !slices.Contains(possible, kind) {
		possible = append(possible, kind)
	}
	return possible
}

// MayBeOf reports whether a child of sm, or its template, may have this kind.
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

// find returns the first child of sm among the kinds. unread reports that a kind could not be read.
func (r Reader) find(ctx context.Context, s *Set, p Part, candidates []schema.GroupKind, liveFallback bool) (obj *unstructured.Unstructured, unread bool) {
	for _, kind := range candidates {
		obj, err := r.findKind(ctx, s, p, kind, liveFallback)
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

// findKind returns the child of one kind, nil if there is none. Only the kind of the spec can be a Problem,
// because only that kind is created.
func (r Reader) findKind(ctx context.Context, s *Set, p Part, kind schema.GroupKind, liveFallback bool) (*unstructured.Unstructured, error) {
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
	found, err := r.get(ctx, client.ObjectKey{Namespace: p.owner.Namespace, Name: p.Name}, obj, liveFallback)
	switch {
	case err != nil:
		return nil, err
	case found && isPartOf(obj, p.owner, s.Machine):
		return obj, nil
	case found && s.Machine != nil:
		// The Machine refers to an object of another controller. It runs, but the state of the child is
		// unknown.
		return nil, errForeign
	case found && kind == p.Kind().GroupKind():
		s.foreign(p.Field, kind.Kind, p.Name)
	}
	return nil, nil
}

// errForeign reports that our Machine refers to an object of another controller.
var errForeign = errors.New("the object has another controller")

// unreadable describes why a child could not be read. The same cause has the same text: details from the API
// server or the network differ each time.
func unreadable(kind schema.GroupKind, err error) string {
	switch {
	case errors.Is(err, kinds.ErrNotServed), errors.Is(err, kinds.ErrUnusable):
		return err.Error()
	case errors.Is(err, errForeign):
		return fmt.Sprintf("the object of kind %s to which the Machine refers has another controller: see its ownerReferences", kind)
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return fmt.Sprintf("objects of kind %s cannot be read in time: does its provider's conversion webhook answer?", kind)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("objects of kind %s cannot be read: 5-Spot lacks the permission", kind)
	default:
		return fmt.Sprintf("objects of kind %s cannot be read (%s): does its provider's conversion webhook answer?", kind, reasonOf(err))
	}
}

// reasonOf returns the reason of an API error, or NoAnswer.
func reasonOf(err error) metav1.StatusReason {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return reason
	}
	return "NoAnswer"
}

// ReadBeforeCreate reads the object that is about to be created live. It returns nil if it does not exist. If it does
// not belong to sm, it adds a Problem to s and returns nil.
func (r Reader) ReadBeforeCreate(ctx context.Context, s *Set, sm *v1alpha1.ScheduledMachine, field string, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(desired.GroupVersionKind())
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(desired), obj)
	ours := isPartOf(obj, sm, s.Machine)
	if desired.GroupVersionKind() == MachineKind {
		ours = isMachineOf(obj, sm)
	}
	switch {
	case kinds.NoObject(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for %s %s: %w", desired.GetKind(), desired.GetName(), err)
	case !ours:
		s.foreign(field, desired.GetKind(), desired.GetName())
		return nil, nil
	}
	return obj, nil
}

func (r Reader) get(ctx context.Context, key client.ObjectKey, obj client.Object, liveFallback bool) (bool, error) {
	err := r.Cached.Get(ctx, key, obj)
	if liveFallback && apierrors.IsNotFound(err) {
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

// ControlPlaneVersion returns spec.version of the Cluster's control plane. It is empty if the kind has no
// version or the object does not exist.
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

// Existing returns the children that are known to exist.
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
