// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// An apiServer keeps objects in memory as an API server does: with versions, generations, finalizers, preconditions and
// watches. controller-runtime's fake client does the same at ten times the cost, which is too slow for fifty storms
// over a thousand machines. A stored object is immutable.
type apiServer struct {
	now     func() time.Time
	objects objects
	version int
	// watches are called with each change, in order.
	watches []func(change)
}

// An id identifies an object.
type id struct{ kind, namespace, name string }

func (i id) String() string { return fmt.Sprintf("%s %s/%s", i.kind, i.namespace, i.name) }

// A change has the object before and after. before is nil for a new object, and after is nil for a deleted one.
type change struct {
	id       id
	from, to client.Object
}

// copied returns an independent server with the same objects.
func (s *apiServer) copied(now func() time.Time) *apiServer {
	return &apiServer{now: now, objects: s.objects.copied(), version: s.version}
}

// objects are the objects of an API server or of a cache, by kind.
type objects map[string]map[id]client.Object

func (o objects) get(i id) (client.Object, bool) {
	obj, exists := o[i.kind][i]
	return obj, exists
}

func (o objects) set(i id, obj client.Object) {
	if o[i.kind] == nil {
		o[i.kind] = map[id]client.Object{}
	}
	o[i.kind][i] = obj
}

func (o objects) remove(i id) { delete(o[i.kind], i) }

func (o objects) copied() objects {
	c := make(objects, len(o))
	for kind, all := range o {
		c[kind] = maps.Clone(all)
	}
	return c
}

// kindOf returns the kind of an object, from its TypeMeta or from its type.
func kindOf(obj runtime.Object) string {
	if kind := obj.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		panic(err)
	}
	return gvk.Kind
}

func idOf(obj client.Object) id { return id{kindOf(obj), obj.GetNamespace(), obj.GetName()} }

// get returns an object, nil if there is none.
func (s *apiServer) get(i id) client.Object { return s.objects[i.kind][i] }

// list returns the objects of a kind, in the order of their names.
func (s *apiServer) list(kind string) []client.Object { return inOrder(s.objects[kind]) }

func inOrder(all map[id]client.Object) []client.Object {
	found := slices.Collect(maps.Values(all))
	slices.SortFunc(found, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return found
}

// create stores a new object, and returns the stored object.
func (s *apiServer) create(obj client.Object) (client.Object, error) {
	i := idOf(obj)
	if _, exists := s.objects.get(i); exists {
		return nil, apierrors.NewAlreadyExists(resource(i), i.name)
	}
	obj = stored(obj)
	obj.SetUID(types.UID(fmt.Sprint("uid-", s.version+1)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	s.put(i, obj)
	return obj, nil
}

// stored returns a copy of an object in the type that the server stores for its kind.
func stored(obj client.Object) client.Object {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.GetKind() != "Machine" {
		return obj.DeepCopyObject().(client.Object)
	}
	m := &clusterv1.Machine{}
	convert(u, m)
	return m
}

// change changes an existing object as a client other than a manager.
func (s *apiServer) change(i id, change func(client.Object)) {
	was, exists := s.objects.get(i)
	if !exists {
		return
	}
	obj := was.DeepCopyObject().(client.Object)
	change(obj)
	if sameSpec(was, obj) {
		obj.SetGeneration(was.GetGeneration())
	} else {
		obj.SetGeneration(was.GetGeneration() + 1)
	}
	s.put(i, obj)
}

func sameSpec(a, b client.Object) bool {
	spec := func(obj client.Object) any {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return u.Object["spec"]
		}
		return reflect.ValueOf(obj).Elem().FieldByName("Spec").Interface()
	}
	return equality.Semantic.DeepEqual(spec(a), spec(b))
}

// put stores an object and calls the watches. It deletes an object that is being deleted and has no finalizer. The
// caller must not use obj afterwards.
func (s *apiServer) put(i id, obj client.Object) {
	was, _ := s.objects.get(i)
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	if !obj.GetDeletionTimestamp().IsZero() && len(obj.GetFinalizers()) == 0 {
		s.objects.remove(i)
		s.tell(change{id: i, from: was})
		return
	}
	s.objects.set(i, obj)
	s.tell(change{id: i, from: was, to: obj})
}

func (s *apiServer) tell(c change) {
	for _, watch := range s.watches {
		watch(c)
	}
}

// delete deletes an object. A UID, if not empty, is a precondition.
func (s *apiServer) delete(i id, uid types.UID) error {
	obj, exists := s.objects.get(i)
	switch {
	case !exists:
		return apierrors.NewNotFound(resource(i), i.name)
	case uid != "" && uid != obj.GetUID():
		return apierrors.NewConflict(resource(i), i.name, fmt.Errorf("the UID is %s", obj.GetUID()))
	case !obj.GetDeletionTimestamp().IsZero():
		return nil
	}
	obj = obj.DeepCopyObject().(client.Object)
	obj.SetDeletionTimestamp(&metav1.Time{Time: s.now().Truncate(time.Second)})
	obj.SetGeneration(obj.GetGeneration() + 1)
	s.put(i, obj)
	return nil
}

// patch merges a patch into the status of an object, or into everything else, and returns the stored object.
func (s *apiServer) patch(i id, data []byte, status bool) (client.Object, error) {
	obj, exists := s.objects.get(i)
	if !exists {
		return nil, apierrors.NewNotFound(resource(i), i.name)
	}
	patch := map[string]any{}
	if err := utiljson.Unmarshal(data, &patch); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if meta, ok := patch["metadata"].(map[string]any); ok {
		for field, have := range map[string]string{"uid": string(obj.GetUID()), "resourceVersion": obj.GetResourceVersion()} {
			if want, named := meta[field].(string); named && want != have {
				return nil, apierrors.NewConflict(resource(i), i.name, fmt.Errorf("the %s is %s", field, have))
			}
			delete(meta, field)
		}
	}
	if status {
		patch = map[string]any{"status": patch["status"]}
	} else {
		delete(patch, "status")
	}
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	after := runtime.DeepCopyJSON(before)
	merge(after, patch)
	if equality.Semantic.DeepEqual(before, after) {
		return obj, nil
	}
	changed := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after, changed); err != nil {
		return nil, err
	}
	if !equality.Semantic.DeepEqual(before["spec"], after["spec"]) {
		changed.SetGeneration(obj.GetGeneration() + 1)
	}
	s.put(i, changed)
	return changed, nil
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		have, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			merge(have, inner)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, inner)
			into[key] = fresh
		default:
			into[key] = value
		}
	}
}

// apply is server-side apply, as far as a single manager of a Machine's fields needs it.
func (s *apiServer) apply(u *unstructured.Unstructured) (client.Object, error) {
	i := idOf(u)
	if _, exists := s.objects.get(i); !exists {
		if uid := u.GetUID(); uid != "" {
			return nil, apierrors.NewConflict(resource(i), i.name, fmt.Errorf("there is none of UID %s", uid))
		}
		return s.create(u)
	}
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, err
	}
	return s.patch(i, data, false)
}

// convert copies an object into one of another type.
func convert(from, into client.Object) {
	if u, ok := from.(*unstructured.Unstructured); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
			panic(err)
		}
		return
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		panic(err)
	}
	u, ok := into.(*unstructured.Unstructured)
	if !ok {
		panic(fmt.Sprintf("%T into %T", from, into))
	}
	gvk, err := apiutil.GVKForObject(from, scheme)
	if err != nil {
		panic(err)
	}
	u.Object = content
	u.SetGroupVersionKind(gvk)
}

// answer copies the stored object to obj.
func answer(obj, have client.Object) {
	if reflect.TypeOf(obj) != reflect.TypeOf(have) {
		convert(have, obj)
		return
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(have.DeepCopyObject()).Elem())
}

func resource(i id) schema.GroupResource {
	group := clusterv1.GroupVersion.Group
	if i.kind == "ScheduledMachine" {
		group = v1alpha1.GroupVersion.Group
	}
	return schema.GroupResource{Group: group, Resource: i.kind}
}
