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

// A NamedKind is a kind that a spec names.
type NamedKind struct {
	// Path is the field that names it: a spec or a reference to a template.
	Path *field.Path
	// Named is what its field kind says.
	Named string
	// Kind is the kind of an object that is made or read.
	Kind schema.GroupVersionKind
}

// Kinds returns the kinds of what is made from a spec at path, and of the templates
// that are read for it. What validation finds wrong with them is not looked at.
func Kinds(s *v1alpha1.ScheduledMachineSpec, path *field.Path) []NamedKind {
	return slices.Concat(
		bootstrap.kinds(s.BootstrapSpec, s.BootstrapTemplateRef, path),
		infrastructure.kinds(s.InfrastructureSpec, s.InfrastructureTemplateRef, path),
	)
}

func (s side) kinds(o v1alpha1.EmbeddedObject, ref v1alpha1.TemplateReference, path *field.Path) []NamedKind {
	if ref == (v1alpha1.TemplateReference{}) {
		return []NamedKind{{path.Child(s.spec), o.Kind, schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)}}
	}
	made := strings.TrimSuffix(ref.Kind, clusterv1.TemplateSuffix)
	return []NamedKind{
		{path.Child(s.ref), ref.Kind, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)},
		{path.Child(s.ref), ref.Kind, schema.FromAPIVersionAndKind(ref.APIVersion, made)},
	}
}
