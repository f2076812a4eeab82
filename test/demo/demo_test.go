// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheStory runs the demo as a user does, with each Node that it can have here.
func TestTheStory(t *testing.T) {
	program := build(t)
	noHold := []string{"reclaimHold is not shown: ", "reclaimHold: None", "is Disabled"}
	t.Run("Simulated", func(t *testing.T) {
		wantStory(t, program, simulatedNode, "because a simulated Node has no pods", noHold)
	})
	t.Run("Real", func(t *testing.T) {
		if err := realnode.Supported(plane.DefaultBin()); err != nil {
			t.Skip(err)
		}
		hold := [][]string{
			{"reclaimHold: Kill", "The owner is protected", `Pod simulation .* uses [1-9]\d* % of a core`, "The owner starts", "The pod stopped", "Node .* is gone"},
			{"The pod stopped", "The pod used 0 % of a core", "is Disabled"},
			{"is Disabled", `CPU back after \d+ ms, memory back after \d+ ms, machine free after \d+ ms`, `T\S+Z +\d+m?s +\d+m?s +\d+m?s +\d+m?s +owners-game`},
		}
		if realnode.SupportedCgroups(infrav1.CgroupV2) != nil {
			hold = [][]string{noHold}
		}
		wantStory(t, program, anyNode, "in pod 5spot-system/reclaim-agent-", hold...)
	})
}

// continued matches the start of a line that continues the one before.
var continued = regexp.MustCompile(`\n {23,}`)

func wantStory(t *testing.T, program, node, agent string, hold ...[]string) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd, tmp := exec.CommandContext(t.Context(), program, "--exit", "--node="+node, "--bin="+system.DefaultBin()), t.TempDir()
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &complaint, time.Second
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &complaint)
	}
	for line := range strings.Lines(out.String()) {
		if utf8.RuneCountInString(line) > columns+len("\n") {
			t.Errorf("longer than %d columns: %s", columns, line)
		}
	}
	text := continued.ReplaceAllString(out.String(), " ")
	for _, want := range append(hold, [][]string{
		{"Local plane is up", "Workload cluster is up", "kubectl apply", "Machine .* is created", "Node .* is Ready", "is Active and Ready"},
		{"is Active and Ready", "reclaim-agent runs", agent, "The owner starts", "reclaim-agent saw it", "Node is annotated", "remembers the request"},
		{"remembers the request", "is EmergencyRemove", "is Disabled"},
		{"remembers the request", "has a deletionTimestamp", "Machine .* is gone", "is Disabled"},
		{"has a deletionTimestamp", "Node .* is gone", "is Disabled: Schedule auto-disabled by emergency reclaim", "Stopping"},
	}...) {
		if err := inOrder(text, want); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("nothing may be left behind: %v, %v", left, err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	err := run(t.Context(), options{bin: t.TempDir()}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("whoever has not built anything must be told how: %v", err)
	}
}

// build returns the demo's program.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// inOrder checks that each expression is found after the one before.
func inOrder(text string, expressions []string) error {
	for _, e := range expressions {
		at := regexp.MustCompile(e).FindStringIndex(text)
		if at == nil {
			return fmt.Errorf("%q is not there, or not after its predecessor of %q", e, expressions)
		}
		text = text[at[1]:]
	}
	return nil
}
