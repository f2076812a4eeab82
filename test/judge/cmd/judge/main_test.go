// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deletion is the deletion of a Machine without a departure record, at 17:00:00.
const deletion = `{"auditID":"1","stage":"ResponseComplete","verb":"delete","user":{"username":"system:serviceaccount:5spot-system:fivespot-manager"},` +
	`"objectRef":{"resource":"machines","namespace":"farm","name":"box","apiGroup":"cluster.x-k8s.io"},"responseStatus":{"code":200},` +
	`"requestObject":{"preconditions":{"uid":"m"}},"responseObject":{"metadata":{"uid":"m","annotations":{"a":"b"},"finalizers":["x"],"deletionTimestamp":"2026-03-02T17:00:00Z"}},` +
	`"requestReceivedTimestamp":"2026-03-02T17:00:00Z","stageTimestamp":"2026-03-02T17:00:01Z"}` + "\n"

func TestRun(t *testing.T) {
	const during, after = "2026-03-02T16:59:00Z/2026-03-02T17:01:00Z", "2026-03-02T17:01:00Z/2026-03-02T17:02:00Z"
	cases := map[string]struct {
		reason, log string
		options     options
		// broken are the rules that are broken, and err is a part of the error.
		broken []string
		err    string
	}{
		"Nothing": {reason: "An empty log breaks nothing."},
		"Default": {reason: "What needs no flag is always judged.", log: deletion, broken: []string{"steps"}},
		"Pause":   {reason: "The flag says when.", log: deletion, options: options{paused: paths{after, during}}, broken: []string{"steps", "silence"}},
		"Shadow":  {reason: "The flag says when.", log: deletion, options: options{shadow: paths{during}}, broken: []string{"steps", "silence"}},
		"Settled": {reason: "The flag says when.", log: deletion, options: options{settled: during}, broken: []string{"steps", "settled"}},
		"Later":   {reason: "It was not settled yet.", log: deletion, options: options{settled: after}, broken: []string{"steps"}},
		"Time":    {reason: "A time has two ends.", options: options{settled: "2026-03-02T16:59:00Z"}, err: "parsing time"},
		"Cap":     {reason: "No fraction is negative.", options: options{fraction: -1}, err: "--cap is -1"},
		"Torn":    {reason: "What cannot be read is not lawful.", log: "{\n", err: "line 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			tc.options.audit = paths{path}
			var out bytes.Buffer
			broken, err := run(tc.options, &out)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s\nerror %v has no %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil || broken != (len(tc.broken) > 0) || strings.Count(out.String(), "BROKEN") != len(tc.broken) {
				t.Errorf("%s\nbroken is %v: %v\n%s", tc.reason, broken, err, &out)
			}
			for _, rule := range tc.broken {
				if !strings.Contains(out.String(), "BROKEN "+rule+": "+path+": machines.cluster.x-k8s.io/farm/box at 2026-03-02T17:00:00Z") {
					t.Errorf("%s\nrule %s is not among:\n%s", tc.reason, rule, &out)
				}
			}
		})
	}
	if _, err := run(options{}, &bytes.Buffer{}); err == nil {
		t.Error("nothing to read is no lawful log")
	}
}

// TestDecisions checks that the manager's log is read: a deletion has no line in it.
func TestDecisions(t *testing.T) {
	dir := t.TempDir()
	audit, lines := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.jsonl")
	for path, text := range map[string]string{audit: deletion, lines: `{"time":"2026-03-02T17:00:00Z","kind":"Join","machine":"farm/box","outcome":"success","action_id":"a","uid":"i"}` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if broken, err := run(options{audit: paths{audit}, decisions: lines}, &out); err != nil || !broken || strings.Count(out.String(), "BROKEN lines") != 2 {
		t.Errorf("broken is %v: %v\n%s", broken, err, &out)
	}
}
