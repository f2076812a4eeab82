// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const apiIntro = `Group ` + "`5spot.finos.org`, version `v1alpha1`, kind `ScheduledMachine`, short name `sm`" + `, namespaced.

The API server refuses what breaks a rule on this page. The grammar of days, hours, time
zones and durations is checked by a webhook, which names the field and the offending text:
[schedules](../schedules.md). Deletion is never refused.`

// crd is the part of a CustomResourceDefinition that the page needs.
type crd struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			AdditionalPrinterColumns []struct {
				Name, JSONPath string
				Priority       int
			}
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			}
		}
	}
}

type schema struct {
	Description          string
	Type, Format         string
	Default              json.RawMessage
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties *schema
	Required             []string
	Enum                 []string
	MinLength, MaxLength *int64
	MaxItems             *int64
	MaxProperties        *int64
	Minimum, Maximum     *int64
	Validations          []struct{ Message string } `json:"x-kubernetes-validations"`
	AnyFields            bool                       `json:"x-kubernetes-preserve-unknown-fields"`
}

const hookIntro = `Group ` + "`5spot.finos.org`, version `v1alpha1`, kind `MachineDeletionHook`" + `, not namespaced: it
registers an [extension](../extensions.md) that 5-Spot calls before a Machine leaves.`

const balancerIntro = `Group ` + "`exp.5spot.finos.org`, version `v1alpha1`, kind `LoadBalancer`" + `, namespaced. Alpha: it
needs the feature gate ` + "`NodeDetach`" + `, and may change with any release; see [load balancers](../load-balancers.md).`

const attachmentIntro = `Group ` + "`exp.5spot.finos.org`, version `v1alpha1`, kind `NodeAttachment`" + `, namespaced. The manager
makes and deletes it; its spec is what 5-Spot gives back to a Node. Alpha, see [load balancers](../load-balancers.md).`

const policyIntro = `Group ` + "`eviction.5spot.finos.org`, version `v1alpha1`, kind `ReschedulePolicy`" + `, namespaced, in the
workload cluster. Alpha: it needs the eviction guard, and may change with any release; see [operators](../operators.md).`

const clusterPolicyIntro = `Group ` + "`eviction.5spot.finos.org`, version `v1alpha1`, kind `ClusterReschedulePolicy`" + `, not namespaced, in
the workload cluster. Alpha, see [operators](../operators.md).`

const requestIntro = `Group ` + "`eviction.5spot.finos.org`, version `v1alpha1`, kind `RescheduleRequest`" + `, namespaced, in the
workload cluster. The eviction guard and the manager make it, and the guard deletes it. Alpha, see [operators](../operators.md).`

// kindPage returns the page of the kind that a CustomResourceDefinition in config/ declares.
func kindPage(path, intro string) page {
	return func(root string) (string, error) {
		b, err := os.ReadFile(filepath.Join(root, "config", path)) //nolint:gosec // the path is ours
		if err != nil {
			return "", err
		}
		var c crd
		if err := yaml.Unmarshal(b, &c); err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		return renderKind(c, intro)
	}
}

func renderKind(c crd, intro string) (string, error) {
	if len(c.Spec.Versions) != 1 {
		return "", fmt.Errorf("%d versions, want one", len(c.Spec.Versions))
	}
	v := c.Spec.Versions[0]
	object := v.Schema.OpenAPIV3Schema
	var d document
	d.title(c.Spec.Names.Kind, intro)
	var rules [][]string
	for _, r := range object.Validations {
		rules = append(rules, []string{r.Message})
	}
	if len(rules) > 0 {
		d.table([]string{"Rules of the object"}, rules)
	}
	for _, part := range []string{"spec", "status"} {
		if _, ok := object.Properties[part]; !ok {
			continue
		}
		rows, err := fields(part, object.Properties[part])
		if err != nil {
			return "", err
		}
		d.section(part, object.Properties[part].Description)
		d.table([]string{"Field", "Type", "Default", "Rules", "Meaning"}, rows)
	}
	var columns [][]string
	for _, col := range v.AdditionalPrinterColumns {
		where := "always"
		if col.Priority > 0 {
			where = "`-o wide`"
		}
		columns = append(columns, []string{col.Name, code(strings.TrimPrefix(col.JSONPath, ".")), where})
	}
	d.section("Columns of kubectl get", "")
	d.table([]string{"Column", "Field", "Shown"}, columns)
	return d.String(), nil
}

// fields returns a row for every field below s, depth first.
func fields(path string, s schema) ([][]string, error) {
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f, at := s.Properties[name], path+"."+name
		if f.Description == "" {
			return nil, fmt.Errorf("%s: no description", at)
		}
		rows = append(rows, []string{
			code(strings.TrimPrefix(at, "spec.")), f.kind(), code(string(f.Default)), f.rules(slices.Contains(s.Required, name)), f.Description,
		})
		if isCondition(f.Items) || isSelector(f) {
			continue // documented by Kubernetes
		}
		inside := f
		if f.Items != nil {
			at, inside = at+"[]", *f.Items
		}
		below, err := fields(at, inside)
		if err != nil {
			return nil, err
		}
		rows = append(rows, below...)
	}
	return rows, nil
}

// isCondition reports whether s is metav1.Condition.
func isCondition(s *schema) bool {
	if s == nil {
		return false
	}
	_, ok := s.Properties["lastTransitionTime"]
	return ok
}

// isSelector reports whether s is metav1.LabelSelector.
func isSelector(s schema) bool {
	_, ok := s.Properties["matchExpressions"]
	return ok
}

func (s schema) kind() string {
	switch {
	case isSelector(s):
		return "LabelSelector"
	case isCondition(s.Items):
		return "[]Condition"
	case s.Items != nil:
		return "[]" + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind()
	case s.AnyFields:
		return "object, any fields"
	case s.Format == "date-time":
		return "time"
	case s.Type == "integer" && s.Format != "":
		return s.Format
	default:
		return s.Type
	}
}

func (s schema) rules(required bool) string {
	var rules []string
	if required {
		rules = append(rules, "required")
	}
	if s.MinLength != nil && *s.MinLength == 1 {
		rules = append(rules, "not empty")
	}
	for _, bound := range []struct {
		n    *int64
		what string
	}{
		{s.MaxLength, "at most %d characters"},
		{s.MaxItems, "at most %d items"},
		{s.MaxProperties, "at most %d keys"},
		{s.Minimum, "at least %d"},
		{s.Maximum, "at most %d"},
	} {
		if bound.n != nil {
			rules = append(rules, fmt.Sprintf(bound.what, *bound.n))
		}
	}
	if s.Items != nil && s.Items.Type == "string" {
		if r := s.Items.rules(false); r != "" {
			rules = append(rules, "each "+r)
		}
	}
	if len(s.Enum) > 0 {
		rules = append(rules, "one of "+strings.Join(s.Enum, ", "))
	}
	for _, v := range s.Validations {
		rules = append(rules, v.Message)
	}
	return strings.Join(rules, "; ")
}
