// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
)

var (
	// printed matches a kubectl command in a text, up to the first character that cannot belong to it.
	printed = regexp.MustCompile(`kubectl(?: (?:'[^']*'|"[^"]*"|[^\s'"(),;:|<>` + "`" + `]+(?::[^\s'"(),;:|<>` + "`" + `]+)*))+`)
	word    = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
	verb    = regexp.MustCompile(`%(?:\[\d\])?[sdwqv]`)
)

// prose are the words that can follow a command in a sentence.
var prose = []string{"in", "when", "first", "of", "if", "or", "and", "until", "before"}

// TestPrintedCommandsExist parses each kubectl command in the product's texts with kubectl or the plugin. Neither calls
// a cluster.
func TestPrintedCommandsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		dir = filepath.Join(root, "bin", "plane")
	}
	bin := filepath.Join(dir, "kubectl")
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("kubectl is missing: run `make plane-kube`, or let KUBEBUILDER_ASSETS name its directory: %v", err)
	}
	ours, theirs := 0, map[string]bool{}
	for _, dir := range []string{"api", "cmd", "controllers", "exp", "internal", "reclaimagent", "runtime-extension"} {
		for _, text := range texts(t, filepath.Join(root, dir)) {
			for _, command := range printed.FindAllString(verb.ReplaceAllString(text, "x"), -1) {
				args := arguments(command)
				switch {
				case len(args) == 0 || args[0] == "x":
				case args[0] == "5spot":
					ours++
					parseOurs(t, args[1:])
				default:
					theirs[strings.Join(args, "\x00")] = true
				}
			}
		}
	}
	for command := range theirs {
		args := strings.Split(command, "\x00")
		if out, err := exec.CommandContext(t.Context(), bin, append(args, "--help")...).CombinedOutput(); err != nil || strings.Contains(string(out), "kubectl controls the Kubernetes cluster manager") {
			t.Errorf("kubectl %s: %v\n%.300s", strings.Join(args, " "), err, out)
		}
	}
	if ours < 10 || len(theirs) < 4 {
		t.Errorf("found %d commands of the plugin and %d of kubectl: the search is broken", ours, len(theirs))
	}
}

// arguments returns the arguments of a command, without the remaining sentence.
func arguments(command string) []string {
	var args []string
	for _, arg := range word.FindAllString(command, -1)[1:] {
		arg = strings.TrimSuffix(arg, ".")
		if slices.Contains(prose, arg) {
			break
		}
		args = append(args, strings.Trim(arg, `'"`))
	}
	return args
}

// parseOurs checks a command line of the plugin. A command name that is a parameter of the text is covered by the tests
// of the texts that fill it in.
func parseOurs(t *testing.T, args []string) {
	t.Helper()
	root := kubectl.New(kubectl.Options{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Now: time.Now})
	cmd, rest, err := root.Find(args)
	switch {
	case err != nil:
		t.Errorf("kubectl 5spot %v: %v", args, err)
	case cmd == root && slices.Contains(rest, "x"):
	case cmd == root && len(rest) > 0:
		t.Errorf("kubectl 5spot %v: no such command", args)
	default:
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("kubectl 5spot %v: %v", args, err)
		}
	}
}

// texts returns the string literals below a folder, without tests, joined where the source concatenates them. They
// include the commands that explanation.command builds.
func texts(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				text := literal(n)
				list = append(list, text)
				return text == ""
			case *ast.BasicLit:
				list = append(list, literal(n))
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "command" && len(n.Args) == 1 {
					list = append(list, "kubectl 5spot "+literal(n.Args[0])+" x")
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// literal returns the value of a string literal or of a concatenation, otherwise an empty string.
func literal(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return literal(n.X) + literal(n.Y)
	}
	return ""
}
