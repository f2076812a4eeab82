// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// plainWords maps words that make a component a person, or that no other Kubernetes project uses, to the field's words.
var plainWords = map[string]string{
	"bequeath": "save", "calm": "clear", "census": "result", "complain": "log", "complained": "logged", "complaints": "log",
	"courtesy": "policy", "doubtful": "rejected", "fate": "change", "glance": "cache", "hear": "receive", "heard": "received",
	"heir": "successor", "husk": "leftover", "keeper": "cache", "nameless": "unidentified", "patience": "timeout",
	"raging": "active", "remember": "record", "roster": "list", "saying": "message",
	"soonest": "earliest", "spoken": "converted", "strayed": "stale", "telling": "report", "thaw": "resume",
	"tidings": "report", "unasked": "refused", "whom": "target", "whose": "target", "whys": "causes",
}

// TestNamesArePlain checks the names of files, and every identifier in production code.
func TestNamesArePlain(t *testing.T) {
	words, fset := regexp.MustCompile(`[A-Z]?[a-z]+`), token.NewFileSet()
	check := func(at, name string) {
		for _, w := range words.FindAllString(name, -1) {
			if plain, found := plainWords[strings.ToLower(w)]; found {
				t.Errorf("%s: %s: replace %q by a word of Kubernetes, such as %q", at, name, w, plain)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "test"}, d.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		check(path, strings.TrimSuffix(d.Name(), ".go"))
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				check(fset.Position(id.Pos()).String(), id.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
