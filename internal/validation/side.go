// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// A side is one of the two provider objects of a spec, bootstrap config or infrastructure machine. The spec has it
// inline in one field, or refers to its template in another.
type side struct {
	name      string
	spec, ref string
	groups    []string
	// word ends every kind of this side that a Machine may refer to, and is not all of it. The manager may create any
	// kind of the groups, which include credentials of a cloud (AWSClusterStaticIdentity) and join tokens
	// (JoinTokenRequest); an author may not. No label or field of a CRD distinguishes these from machines, so the name
	// decides. The schema and the webhook have the same rule, so it has no option.
	word    string
	example string
}

var (
	bootstrap = side{
		name: "bootstrap config", spec: "bootstrapSpec", ref: "bootstrapTemplateRef",
		groups: []string{"bootstrap.cluster.x-k8s.io", "k0smotron.io"}, word: "Config", example: "KubeadmConfig",
	}
	infrastructure = side{
		name: "infrastructure machine", spec: "infrastructureSpec", ref: "infrastructureTemplateRef",
		groups: []string{"infrastructure.cluster.x-k8s.io", "k0smotron.io"}, word: "Machine", example: "DevMachine",
	}
)

// kindPattern requires a capital letter first. API servers accept a kind in lower case, too, but there are no objects
// of that kind.
var kindPattern = regexp.MustCompile(`^[A-Z][-A-Za-z0-9]*$`)

// validate requires exactly one of the two fields.
func (s side) validate(o v1alpha1.EmbeddedObject, ref v1alpha1.TemplateReference, path *field.Path) field.ErrorList {
	inline := o.APIVersion != "" || o.Kind != "" || len(o.Spec.Raw) > 0
	named := ref != v1alpha1.TemplateReference{}
	var errs field.ErrorList
	switch {
	case !inline && !named:
		return field.ErrorList{field.Required(path.Child(s.spec), fmt.Sprintf("describe the %s, or name its template in %s", s.name, s.ref))}
	case inline && named:
		errs = append(errs, field.Forbidden(path.Child(s.ref), fmt.Sprintf("must not be set together with %s: keep one of them", s.spec)))
	}
	if inline {
		errs = append(errs, s.embedded(o, path.Child(s.spec))...)
	}
	if named {
		errs = append(errs, s.template(ref, path.Child(s.ref))...)
	}
	return errs
}

func (s side) embedded(o v1alpha1.EmbeddedObject, path *field.Path) field.ErrorList {
	return append(s.group(o.APIVersion, path.Child("apiVersion")),
		kindEndsIn(o.Kind, s.word, "the kind of the "+s.name+", such as "+s.example, path.Child("kind"))...)
}

func (s side) template(ref v1alpha1.TemplateReference, path *field.Path) field.ErrorList {
	const suffix = clusterv1.TemplateSuffix
	errs := append(s.group(ref.APIVersion, path.Child("apiVersion")),
		kindEndsIn(ref.Kind, s.word+suffix, "the kind of a template, such as "+s.example+suffix, path.Child("kind"))...)
	if ref.Name == "" {
		return append(errs, field.Required(path.Child("name"), "name a template in the same namespace"))
	}
	return append(errs, invalid(path.Child("name"), ref.Name, validation.IsDNS1123Subdomain(ref.Name))...)
}

func kindEndsIn(got, word, what string, path *field.Path) field.ErrorList {
	switch {
	case got == "":
		return field.ErrorList{field.Required(path, "name "+what)}
	case !kindPattern.MatchString(got), !strings.HasSuffix(got, word), got == word:
		return field.ErrorList{field.Invalid(path, got, fmt.Sprintf("must be %s: it begins with a capital and ends in %s", what, word))}
	}
	return nil
}

func (s side) group(apiVersion string, path *field.Path) field.ErrorList {
	allowed := "must be of group " + strings.Join(s.groups, " or ") + ", such as " + s.groups[0] + "/v1beta2"
	gv, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case apiVersion == "":
		return field.ErrorList{field.Required(path, allowed)}
	case err != nil, gv.Version == "", !slices.Contains(s.groups, gv.Group):
		return field.ErrorList{field.Invalid(path, apiVersion, allowed)}
	}
	return nil
}
