// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// values are valid values for variables, other than the defaults. Some would have another type in YAML without quotes.
func values() map[string]string {
	return map[string]string{
		"KUBERNETES_VERSION":                 plane.Version,
		"CONTROL_PLANE_MACHINE_COUNT":        "3",
		"POD_CIDR":                           "10.1.0.0/16",
		"SERVICE_CIDR":                       "10.2.0.0/16",
		"FIVESPOT_MACHINE_NAME":              "box",
		"FIVESPOT_SCHEDULE_DAYS":             "sat,sun",
		"FIVESPOT_SCHEDULE_HOURS":            "9",
		"FIVESPOT_TIMEZONE":                  "America/New_York",
		"FIVESPOT_NODE_DRAIN_TIMEOUT":        "0s",
		"FIVESPOT_GRACEFUL_SHUTDOWN_TIMEOUT": "1h",
		"FIVESPOT_KILL_IF_COMMANDS":          `["idea", "no"]`,
		"FIVESPOT_RECLAIM_HOLD":              "Freeze",
		"FIVESPOT_MACHINE_ADDRESS":           "192.0.2.42",
		"FIVESPOT_MACHINE_SSH_KEY_SECRET":    "42",
		"FIVESPOT_MACHINE_PORT":              "2222",
		"FIVESPOT_MACHINE_USER":              "7",
		"FIVESPOT_MACHINE_USE_SUDO":          "true",
	}
}

// required are the variables without which some template cannot be filled in.
func required() map[string]string {
	set := map[string]string{}
	for _, name := range []string{"KUBERNETES_VERSION", "FIVESPOT_MACHINE_ADDRESS", "FIVESPOT_MACHINE_SSH_KEY_SECRET"} {
		set[name] = values()[name]
	}
	return set
}

// A user has clusterctl and no configuration.
type user struct {
	t    *testing.T
	home string
}

func newUser(t *testing.T) *user {
	t.Helper()
	return &user{t: t, home: t.TempDir()}
}

// try runs clusterctl with variables, and returns its output. The error includes its messages.
func (u *user) try(variables map[string]string, args ...string) (string, error) {
	cmd := exec.CommandContext(u.t.Context(), shared.Bin("clusterctl"), args...)
	cmd.Env = shared.Management.Environ(u.home)
	for name, value := range variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("clusterctl %s: %w: %s", strings.Join(args, " "), err, &complaint)
	}
	return string(out), err
}

func (u *user) clusterctl(variables map[string]string, args ...string) string {
	u.t.Helper()
	out, err := u.try(variables, args...)
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

// listed is a line of --list-variables.
var listed = regexp.MustCompile(`(?m)^  - ([A-Z0-9_]+)(?: +\(defaults to "?(.*?)"?\))?$`)

// variables returns the variables of a template, except the two that clusterctl sets.
func (u *user) variables(file string) map[string]variable {
	u.t.Helper()
	out := u.clusterctl(nil, "generate", "cluster", "lab", "--from", filepath.Join(directory(), file), "--list-variables")
	found := map[string]variable{}
	for _, m := range listed.FindAllStringSubmatch(out, -1) {
		if m[1] != "CLUSTER_NAME" && m[1] != "NAMESPACE" {
			found[m[1]] = variable{Default: m[2], Required: m[2] == ""}
		}
	}
	if len(found) == 0 {
		u.t.Fatalf("%s has no variables:\n%s", file, out)
	}
	return found
}
