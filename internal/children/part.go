// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/difference"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// A Part is the bootstrap config or the infrastructure machine. It is made from the spec, or from a template
// that the spec names.
type Part struct {
	// Field is the field of the spec from which it is made, such as "bootstrapSpec".
	Field string
	// Name is the name of the child.
	Name string

	owner    *v1alpha1.ScheduledMachine
	inline   v1alpha1.EmbeddedObject
	template v1alpha1.TemplateReference
}

// BootstrapOf returns the bootstrap config of sm.
func BootstrapOf(sm *v1alpha1.ScheduledMachine) Part {
	return partOf(Part{
		Field: "bootstrapSpec", Name: NamesOf(sm.Name).Bootstrap, owner: sm,
		inline: sm.Spec.BootstrapSpec, template: sm.Spec.BootstrapTemplateRef,
	}, "bootstrapTemplateRef")
}

// InfrastructureOf returns the infrastructure machine of sm.
func InfrastructureOf(sm *v1alpha1.ScheduledMachine) Part {
	return partOf(Part{
		Field: "infrastructureSpec", Name: NamesOf(sm.Name).Infrastructure, owner: sm,
		inline: sm.Spec.InfrastructureSpec, template: sm.Spec.InfrastructureTemplateRef,
	}, "infrastructureTemplateRef")
}

func partOf(p Part, templateField string) Part {
	if p.cloned() {
		p.Field = templateField
	}
	return p
}

// cloned reports whether the child is made from a template.
func (p Part) cloned() bool { return p.template != v1alpha1.TemplateReference{} }

// Kind returns the kind of the child. For a template it is the kind without the suffix Template.
func (p Part) Kind() schema.GroupVersionKind {
	if p.cloned() {
		return schema.FromAPIVersionAndKind(p.template.APIVersion, strings.TrimSuffix(p.template.Kind, clusterv1.TemplateSuffix))
	}
	return schema.FromAPIVersionAndKind(p.inline.APIVersion, p.inline.Kind)
}

// Hash identifies the source of the child. It does not depend on key order and white space. For a template it
// covers only the reference: templates are immutable by convention, and are replaced by others with new names
// (ADR 0008).
func (p Part) Hash() string {
	if p.cloned() {
		return hash(p.template.APIVersion, p.template.Kind, p.template.Name)
	}
	var spec any
	if len(p.inline.Spec.Raw) > 0 {
		if err := utiljson.Unmarshal(p.inline.Spec.Raw, &spec); err != nil {
			spec = string(p.inline.Spec.Raw)
		}
	}
	return hash(p.inline.APIVersion, p.inline.Kind, spec)
}

func hash(of ...any) string {
	b, err := json.Marshal(of)
	if err != nil { // a value that was unmarshalled marshals
		return ""
	}
	return digest(b)
}

// MadeFrom reports whether live was made from the current spec.
func (p Part) MadeFrom(live *unstructured.Unstructured) bool {
	return live.GetAnnotations()[v1alpha1.SpecHashAnnotation] == p.Hash()
}

// Dropped returns the fields of the spec that live lacks although it was made from them: its API prunes unknown
// fields. It does not compare zero values, other versions of the API, and templates.
func (p Part) Dropped(live *unstructured.Unstructured) []string {
	if p.cloned() || !p.MadeFrom(live) || live.GetAPIVersion() != p.inline.APIVersion {
		return nil
	}
	var spec any
	if err := utiljson.Unmarshal(p.inline.Spec.Raw, &spec); err != nil {
		return nil
	}
	var dropped []string
	for _, f := range difference.Between("spec."+p.Field+".spec", spec, live.Object["spec"]) {
		if f.After == nil && !f.Element && !empty(f.Before) {
			dropped = append(dropped, f.Path)
		}
	}
	return dropped
}

// empty reports whether an API may omit a value because it is the zero value.
func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Values(value)), func(v any) bool { return !empty(v) })
	case []any:
		return len(value) == 0
	default:
		return value == nil || value == "" || value == false || value == int64(0)
	}
}

// Desired builds the child. It reads a template live. If a template or kind cannot be used, it adds a Problem
// to s and returns nil.
func (r Reader) Desired(ctx context.Context, s *Set, p Part) (*unstructured.Unstructured, error) {
	source := p.Kind()
	if p.cloned() {
		source = schema.FromAPIVersionAndKind(p.template.APIVersion, p.template.Kind)
	}
	switch err := r.kinds().ToMake(ctx, source); {
	case errors.Is(err, kinds.ErrNotInstalled), errors.Is(err, kinds.ErrUnusable), errors.Is(err, kinds.ErrNotServed):
		s.Problems = append(s.Problems, Problem{p.Field, err.Error()})
		return nil, nil
	case err != nil:
		return nil, err
	case !p.cloned():
		return p.embedded()
	}
	template, err := r.template(ctx, s, p, source)
	if template == nil || err != nil {
		return nil, err
	}
	s.Templates = append(s.Templates, template)
	desired, problem := p.clone(template)
	if problem != "" {
		s.Problems = append(s.Problems, Problem{p.Field, problem})
	}
	return desired, nil
}

// embedded builds the child from the spec. sm is not its controller: Cluster API's machine controller makes the Machine
// the controller, and fails on an object that has another one (ADR 0002).
func (p Part) embedded() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if len(p.inline.Spec.Raw) > 0 {
		var spec map[string]any
		// The standard library would parse 9007199254740993 as ...992.
		if err := utiljson.Unmarshal(p.inline.Spec.Raw, &spec); err != nil {
			return nil, fmt.Errorf("reading spec of %s: %w", p.inline.Kind, err)
		}
		u.Object["spec"] = spec
	}
	u.SetGroupVersionKind(p.Kind())
	u.SetNamespace(p.owner.Namespace)
	u.SetName(p.Name)
	u.SetLabels(labelsOf(p.owner))
	u.SetAnnotations(p.annotations())
	u.SetOwnerReferences([]metav1.OwnerReference{owner(p.owner, false)})
	return u, nil
}

func (p Part) annotations() map[string]string {
	return map[string]string{v1alpha1.SpecHashAnnotation: p.Hash()}
}

// clone builds the child from its template as Cluster API does. problem describes what is wrong with the
// template.
func (p Part) clone(template *unstructured.Unstructured) (u *unstructured.Unstructured, problem string) {
	if _, found, err := unstructured.NestedMap(template.Object, "spec", "template"); !found || err != nil {
		return nil, fmt.Sprintf("%s %s has no spec.template to clone: name a template that has one", p.template.Kind, p.template.Name)
	}
	ref := &corev1.ObjectReference{APIVersion: p.template.APIVersion, Kind: p.template.Kind, Name: p.template.Name}
	u, err := external.GenerateTemplate(&external.GenerateTemplateInput{
		Template: template, TemplateRef: ref, Namespace: p.owner.Namespace, Name: p.Name, ClusterName: p.owner.Spec.ClusterName,
		OwnerRef: new(owner(p.owner, false)), Labels: labelsOf(p.owner), Annotations: p.annotations(),
	})
	if err != nil {
		return nil, err.Error()
	}
	if got, want := u.GroupVersionKind().GroupKind(), p.Kind().GroupKind(); got != want {
		return nil, fmt.Sprintf("spec.template of %s %s is a %s, not a %s: name a template for the right kind", p.template.Kind, p.template.Name, got, want)
	}
	return u, ""
}

// template reads the template. If it does not exist, it adds a Problem to s and returns nil.
func (r Reader) template(ctx context.Context, s *Set, p Part, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	template := &unstructured.Unstructured{}
	template.SetGroupVersionKind(gvk)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.owner.Namespace, Name: p.template.Name}, template)
	switch {
	case apierrors.IsNotFound(err):
		s.Problems = append(s.Problems, Problem{p.Field, fmt.Sprintf(
			"%s %s does not exist in namespace %s: create it, or name another", gvk.Kind, p.template.Name, p.owner.Namespace)})
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading template %s %s: %w", gvk.Kind, p.template.Name, err)
	}
	return template, nil
}

// Templates reads the templates that sm names and that exist.
func (r Reader) Templates(ctx context.Context, sm *v1alpha1.ScheduledMachine) ([]*unstructured.Unstructured, error) {
	var s Set
	for _, p := range []Part{BootstrapOf(sm), InfrastructureOf(sm)} {
		if _, err := r.Desired(ctx, &s, p); err != nil {
			return nil, err
		}
	}
	return s.Templates, nil
}
