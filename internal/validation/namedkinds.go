// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A NamedKind is a kind that a spec refers to.
type NamedKind struct {
	// Path is the field that refers to it: an inline spec or a template reference.
	Path *field.Path
	// Named is the value of the field kind.
	Named string
	// Kind is the kind of the created object, or of the template that is read.
	Kind schema.GroupVersionKind
}

// Kinds returns the kinds of the objects that a spec at path creates, and of the templates for them. It does not
// validate them.
func Kinds(s *v1alpha1.ScheduledMachineSpec, path *field.Path) []NamedKind {
	return slices.Concat(
		bootstrap.kinds(s.BootstrapSpec, s.BootstrapTemplateRef, path),
		infrastructure.kinds(s.InfrastructureSpec, s.InfrastructureTemplateRef, path),
	)
}

func (p part) kinds(o v1alpha1.EmbeddedObject, ref v1alpha1.TemplateReference, path *field.Path) []NamedKind {
	if ref == (v1alpha1.TemplateReference{}) {
		return []NamedKind{{path.Child(p.spec), o.Kind, schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)}}
	}
	made := strings.TrimSuffix(ref.Kind, clusterv1.TemplateSuffix)
	return []NamedKind{
		{path.Child(p.ref), ref.Kind, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)},
		{path.Child(p.ref), ref.Kind, schema.FromAPIVersionAndKind(ref.APIVersion, made)},
	}
}
