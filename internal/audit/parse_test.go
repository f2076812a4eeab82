// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

func TestALineIsReadAsItWasWritten(t *testing.T) {
	var out bytes.Buffer
	audit.New(&out).Write(line)
	got, err := audit.Parse(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := line
	want.Time = want.Time.UTC()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParse(t *testing.T) {
	cases := map[string]struct{ reason, text, err string }{
		"Least":          {"What every line has.", `{"time":"2026-03-02T17:00:00Z","kind":"Join","outcome":"success"}`, ""},
		"LaterVersion":   {"A manager that is newer than the plugin.", `{"time":"2026-03-02T17:00:00Z","kind":"Cordon","action_id":"a","outcome":"success","node":"x"}`, ""},
		"Torn":           {"The disk was full in the middle of a line.", `{"time":"2026-03-02T17:00:00Z","ki`, "no line of an audit log: unexpected end of JSON input"},
		"Log":            {"The manager's own log is on the same stream.", `I0302 17:00:00.000000 1 main.go:10] "Starting"`, "no line of an audit log: invalid character 'I' looking for beginning of value"},
		"LogOfJSON":      {"Its log may be JSON, too.", `{"ts":1.5,"msg":"Starting"}`, "no line of an audit log: it has no time"},
		"NoKind":         {"The action is unknown.", `{"time":"2026-03-02T17:00:00Z","action_id":"a","outcome":"success"}`, "no line of an audit log: it has no kind"},
		"NoOutcome":      {"It would count as done.", `{"time":"2026-03-02T17:00:00Z","kind":"Join","action_id":"a"}`, "no line of an audit log: it has no outcome"},
		"UnknownOutcome": {"A person could not count it.", `{"time":"2026-03-02T17:00:00Z","kind":"Join","action_id":"a","outcome":"maybe"}`, `no line of an audit log: unknown outcome "maybe"`},
		"Two":            {"What is torn takes the next with it.", `{"time":"2026-03-02T17:00:00Z","kind":"Join","action_id":"a","outcome":"success"}{}`, "no line of an audit log: invalid character '{' after top-level value"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := audit.Parse([]byte(tc.text))
			if got := text(err); got != tc.err || err != nil && !errors.Is(err, audit.ErrNoLine) {
				t.Errorf("%s\ngot %q, want %q", tc.reason, got, tc.err)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestAllAreListed finds constants that are missing in Kinds or Outcomes.
func TestAllAreListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "line.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if name, ok := spec.Type.(*ast.Ident); ok {
				declared[name.Name]++
			}
		}
		return true
	})
	if declared["Kind"] != len(audit.Kinds) || declared["Outcome"] != len(audit.Outcomes) {
		t.Errorf("%v are declared, and %d and %d listed", declared, len(audit.Kinds), len(audit.Outcomes))
	}
}

func FuzzParse(f *testing.F) {
	text, err := json.Marshal(line)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(append(text, text...))
	f.Add([]byte(`{"time":"0001-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := audit.Parse(text)
		if err != nil {
			if !errors.Is(err, audit.ErrNoLine) {
				t.Error(err)
			}
			return
		}
		var out bytes.Buffer
		audit.New(&out).Write(l)
		again, err := audit.Parse(out.Bytes())
		if year := l.Time.Year(); year < 0 || year > 9999 {
			return // JSON cannot represent such a time.
		}
		if diff := cmp.Diff(l, again); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
