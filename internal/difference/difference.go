// SPDX-License-Identifier: Apache-2.0

// Package difference compares two unstructured objects, and returns the fields in which they differ. It uses no schema.
package difference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A Field is a field that differs.
type Field struct {
	// Path names the field, for example spec.containers[0].image.
	Path string
	// Before and After are its values, nil where it is missing.
	Before, After any
	// Element reports that the field is a list element that only the longer list has.
	Element bool
}

// Between returns the fields below path in which two values differ.
func Between(path string, before, after any) (fields []Field) {
	beforeMap, isMap := before.(map[string]any)
	afterMap, isMapToo := after.(map[string]any)
	beforeList, isList := before.([]any)
	afterList, isListToo := after.([]any)
	switch {
	case isMap && isMapToo:
		union := maps.Clone(beforeMap)
		maps.Copy(union, afterMap)
		for _, key := range slices.Sorted(maps.Keys(union)) {
			fields = append(fields, Between(child(path, key), beforeMap[key], afterMap[key])...)
		}
	case isList && isListToo:
		common := min(len(beforeList), len(afterList))
		for i := range common {
			fields = append(fields, Between(element(path, i), beforeList[i], afterList[i])...)
		}
		for i, v := range beforeList[common:] {
			fields = append(fields, Field{Path: element(path, common+i), Before: v, Element: true})
		}
		for i, v := range afterList[common:] {
			fields = append(fields, Field{Path: element(path, common+i), After: v, Element: true})
		}
	case !equality.Semantic.DeepEqual(before, after):
		fields = []Field{{Path: path, Before: before, After: after}}
	}
	return fields
}

// Path converts the path of a managed field to the notation of Between. A managed field identifies a list element by
// its keys. Path finds its index in object, which must contain the field.
func Path(object map[string]any, managed fieldpath.Path) (path string) {
	var at any = object
	for _, e := range managed {
		list, _ := at.([]any)
		i := -1
		switch {
		case e.FieldName != nil:
			parent, _ := at.(map[string]any)
			path, at = child(path, *e.FieldName), parent[*e.FieldName]
			continue
		case e.Index != nil:
			i = *e.Index
		case e.Value != nil:
			i = slices.IndexFunc(list, func(v any) bool { return value.Equals(value.NewValueInterface(v), *e.Value) })
		case e.Key != nil:
			i = slices.IndexFunc(list, func(v any) bool { return hasKeys(v, *e.Key) })
		}
		path, at = element(path, i), nil
		if i >= 0 && i < len(list) {
			at = list[i]
		}
	}
	return path
}

func hasKeys(v any, keys value.FieldList) bool {
	m, _ := v.(map[string]any)
	return !slices.ContainsFunc(keys, func(f value.Field) bool {
		return !value.Equals(value.NewValueInterface(m[f.Name]), f.Value)
	})
}

// Within reports whether path names field, or a field below it.
func Within(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// child returns the path of a field below path. A key with dots or slashes is in brackets.
func child(path, key string) string {
	switch {
	case strings.ContainsAny(key, "./"):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
