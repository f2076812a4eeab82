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

// A part is one of the two provider objects of a spec, bootstrap config or infrastructure machine. The spec has it
// inline in one field, or refers to its template in another.
type part struct {
	name      string
	spec, ref string
	groups    []string
	// word ends every kind of this part that a Machine may refer to, and is not all of it. The manager may create any
	// kind of the groups, which include credentials of a cloud (AWSClusterStaticIdentity) and join tokens
	// (JoinTokenRequest); an author may not. No label or field of a CRD distinguishes these from machines, so the name
	// decides. The schema and the webhook have the same rule, so it has no option.
	word    string
	example string
}

var (
	bootstrap = part{
		name: "bootstrap config", spec: "bootstrapSpec", ref: "bootstrapTemplateRef",
		groups: []string{"bootstrap.cluster.x-k8s.io", "k0smotron.io"}, word: "Config", example: "KubeadmConfig",
	}
	infrastructure = part{
		name: "infrastructure machine", spec: "infrastructureSpec", ref: "infrastructureTemplateRef",
		groups: []string{"infrastructure.cluster.x-k8s.io", "k0smotron.io"}, word: "Machine", example: "DevMachine",
	}
)

// kindPattern requires a capital letter first. API servers accept a kind in lower case, too, but there are no objects
// of that kind.
var kindPattern = regexp.MustCompile(`^[A-Z][-A-Za-z0-9]*$`)

// validate requires exactly one of the two fields.
func (p part) validate(o v1alpha1.EmbeddedObject, ref v1alpha1.TemplateReference, path *field.Path) field.ErrorList {
	inline := o.APIVersion != "" || o.Kind != "" || len(o.Spec.Raw) > 0
	named := ref != v1alpha1.TemplateReference{}
	var errs field.ErrorList
	switch {
	case !inline && !named:
		return field.ErrorList{field.Required(path.Child(p.spec), fmt.Sprintf("describe the %s, or name its template in %s", p.name, p.ref))}
	case inline && named:
		errs = append(errs, field.Forbidden(path.Child(p.ref), fmt.Sprintf("must not be set together with %s: keep one of them", p.spec)))
	}
	if inline {
		errs = append(errs, p.embedded(o, path.Child(p.spec))...)
	}
	if named {
		errs = append(errs, p.template(ref, path.Child(p.ref))...)
	}
	return errs
}

func (p part) embedded(o v1alpha1.EmbeddedObject, path *field.Path) field.ErrorList {
	return append(p.group(o.APIVersion, path.Child("apiVersion")),
		kindEndsIn(o.Kind, p.word, "the kind of the "+p.name+", such as "+p.example, path.Child("kind"))...)
}

func (p part) template(ref v1alpha1.TemplateReference, path *field.Path) field.ErrorList {
	const suffix = clusterv1.TemplateSuffix
	errs := append(p.group(ref.APIVersion, path.Child("apiVersion")),
		kindEndsIn(ref.Kind, p.word+suffix, "the kind of a template, such as "+p.example+suffix, path.Child("kind"))...)
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

func (p part) group(apiVersion string, path *field.Path) field.ErrorList {
	allowed := "must be of group " + strings.Join(p.groups, " or ") + ", such as " + p.groups[0] + "/v1beta2"
	gv, err := schema.ParseGroupVersion(apiVersion)
	switch {
	case apiVersion == "":
		return field.ErrorList{field.Required(path, allowed)}
	case err != nil, gv.Version == "", !slices.Contains(p.groups, gv.Group):
		return field.ErrorList{field.Invalid(path, apiVersion, allowed)}
	}
	return nil
}
