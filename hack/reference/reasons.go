// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const reasonsIntro = `The phases, conditions, reasons and annotations that the controllers and the agent write. They are an
API: scripts and alerts may depend on them.

What a condition means for you and what to do: [guide](../guide.md#troubleshooting).`

// A constant is one name of the API.
type constant struct{ name, value, doc string }

// A group is a declaration of constants that belong together.
type group struct {
	doc       string
	constants []constant
}

func reasonsPage(root string) (string, error) {
	var groups [5][]group
	for i, path := range []string{
		"api/v1alpha1/names.go", "api/v1alpha1/scheduledmachine_types.go", "api/reclaim/reclaim.go",
		"exp/api/v1alpha1/names.go", "exp/eviction/api/v1alpha1/names.go",
	} {
		var err error
		if groups[i], err = constantsOf(filepath.Join(root, path)); err != nil {
			return "", err
		}
	}
	return renderReasons(slices.Concat(groups[0], groups[3]), groups[1], groups[2], groups[4])
}

// A table of constants.
type section struct {
	title, intro, head string
	groups             []group
	want               func(constant) bool
}

func renderReasons(names, types, node, guard []group) (string, error) {
	all := []section{
		{"Phases", "", "Phase", types, func(c constant) bool { return strings.HasPrefix(c.name, "Phase") }},
		{"Conditions", "`Paused` is Cluster API's own.", "Condition", names, isA("Condition")},
	}
	for _, g := range names {
		if strings.HasPrefix(g.doc, "Reasons of ") && !slices.ContainsFunc(g.constants, isA("Event")) {
			title := strings.TrimSuffix(strings.Join(strings.Fields(g.doc), " "), ".")
			all = append(all, section{title, introOf(title), "Reason", []group{g}, isA("")})
		}
	}
	all = append(
		all,
		section{"Events", eventsIntro, "Reason", names, isA("Event")},
		section{"Events of the eviction guard", "In the workload cluster.", "Reason", guard, isA("Event")},
		section{"In the management cluster", "Annotations, labels and finalizers.", "Key", names, not(ofNodes, isA("Annotation", "Label", "Finalizer"))},
		section{"In the workload cluster", "Annotations, labels and taints of Nodes, their pods and Namespaces.", "Key", slices.Concat(node, only(names, ofNodes), guard), isA("Annotation", "Label", "Taint")},
		section{"Field managers", "", "Name", slices.Concat(names, node), isA("FieldManager")},
	)
	var d document
	d.title("Phases, conditions, reasons and annotations", reasonsIntro)
	for _, s := range all {
		rows, err := s.rows()
		if err != nil {
			return "", err
		}
		d.section(s.title, s.intro)
		d.table([]string{s.head, "Meaning"}, rows)
	}
	return d.String(), nil
}

func (s section) rows() ([][]string, error) {
	var rows [][]string
	for _, g := range s.groups {
		for _, c := range g.constants {
			if !s.want(c) {
				continue
			}
			if c.doc == "" {
				return nil, fmt.Errorf("%s: no doc comment", c.name)
			}
			rows = append(rows, []string{code(c.value), sentence(c, s.groups)})
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: no constants", s.title)
	}
	return rows, nil
}

const eventsIntro = "Every change of phase is an event `Old -> New: message`, with the reason of `Ready` as its\n" +
	"reason: Warning for `Error`, `Terminated` and `EmergencyRemove`, Normal otherwise. Besides:"

// introOf returns a sentence about the reasons of a condition that other programs define.
func introOf(title string) string {
	switch {
	case strings.Contains(title, "Ready condition"):
		return "Also `ScheduleUnreadable`, `ReferencesInvalid` and `ActuationPaused`, as below."
	case strings.Contains(title, "MachineReady"):
		return "While there is a Machine, `MachineReady` otherwise carries the reason and message of the\nMachine's own `Ready` condition, or of `Deleting` while it leaves."
	case strings.Contains(title, "NodeTainted"):
		return "Also `NotConnected`, as above: then the Node cannot be seen."
	default:
		return ""
	}
}

// isA selects constants by the suffixes of their names.
func isA(suffixes ...string) func(constant) bool {
	return func(c constant) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(c.name, s) })
	}
}

// ofNodes selects constants for Nodes and their pods by the prefixes of their names.
func ofNodes(c constant) bool {
	return strings.HasPrefix(c.name, "Node") || strings.HasPrefix(c.name, "Pod")
}

// not selects the constants that one selects and the other does not.
func not(other, one func(constant) bool) func(constant) bool {
	return func(c constant) bool { return one(c) && !other(c) }
}

// only returns the groups with the wanted constants only.
func only(groups []group, want func(constant) bool) []group {
	var found []group
	for _, g := range groups {
		found = append(found, group{g.doc, slices.DeleteFunc(slices.Clone(g.constants), func(c constant) bool { return !want(c) })})
	}
	return found
}

// seeAlso matches references to Go code, which the page does not show.
var seeAlso = regexp.MustCompile(` See \[\w+\]\.`)

// sentence rewrites a doc comment for readers of the page: it removes the name of the constant, and replaces the names
// of other constants by their values.
func sentence(c constant, groups []group) string {
	text := strings.Join(strings.Fields(c.doc), " ")
	for _, prefix := range []string{c.name + " means that ", c.name + " means ", c.name + " is ", c.name + " "} {
		if rest, ok := strings.CutPrefix(text, prefix); ok {
			text = rest
			break
		}
	}
	text = seeAlso.ReplaceAllString(text, "")
	for _, g := range groups {
		for _, other := range g.constants {
			text = strings.ReplaceAll(text, "["+other.name+"]", code(other.value))
		}
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// constantsOf returns the declared constants of a file whose values are strings.
func constantsOf(path string) ([]group, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var groups []group
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			continue
		}
		g := group{doc: strings.TrimSpace(d.Doc.Text())}
		for _, spec := range d.Specs {
			if c, ok := constantOf(spec); ok {
				g.constants = append(g.constants, c)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func constantOf(spec ast.Spec) (constant, bool) {
	v, ok := spec.(*ast.ValueSpec)
	if !ok || len(v.Values) != 1 {
		return constant{}, false
	}
	value := text(v.Values[0])
	return constant{v.Names[0].Name, value, v.Doc.Text()}, value != ""
}
