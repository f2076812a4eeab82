// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	everything = "Name:\trunc\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n"
	without    = "Name:\trunc\nCapBnd:\t000001fffeffffff\nCapAmb:\t0000000000000000\n"
	config     = `{"process":{"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"]}},` +
		`"linux":{"resources":{"cpu":{"shares":2},"devices":[{"allow":true}],"memory":{"limit":9223372036854771712},"unified":{"cpu.weight":"1","memory.high":"2"}}}}`
)

func TestTrimTakesOutWhatCannotBeHad(t *testing.T) {
	cases := map[string]struct {
		reason, controllers, status, want string
	}{
		"NothingIsMissing": {
			reason:      "On an ordinary machine containers get what they ask for, to the last digit.",
			controllers: "cpuset cpu io memory hugetlb pids rdma\n", status: everything, want: config,
		},
		"NoControllers": {
			reason: "runc refuses a limit whose controller is not there; rules for devices have none.", status: everything,
			want: `{"process":{"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"]}},"linux":{"resources":{"devices":[{"allow":true}],"unified":{}}}}`,
		},
		"OneController": {
			reason: "Limits of the controllers that are there stay.", controllers: "memory", status: everything,
			want: `{"process":{"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"]}},"linux":{"resources":{"devices":[{"allow":true}],"memory":{"limit":9223372036854771712},"unified":{"memory.high":"2"}}}}`,
		},
		"NoCapability": {
			reason:      "The kernel refuses a capability that is not in the bounding set.",
			controllers: "cpu memory", status: without,
			want: `{"process":{"capabilities":{"bounding":["CAP_KILL"]}},"linux":{"resources":{"cpu":{"shares":2},"devices":[{"allow":true}],"memory":{"limit":9223372036854771712},"unified":{"cpu.weight":"1","memory.high":"2"}}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := parseMachine(tc.controllers, tc.status)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := edit(path, m.trim); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sorted(t, tc.want), string(got)); diff != "" {
				t.Errorf("%s\ntrim(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// sorted is JSON with its keys in the order in which they are written.
func sorted(t *testing.T, text string) string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestParseReadsArgumentsAsRuncDoes(t *testing.T) {
	cases := map[string]struct {
		args []string
		want call
	}{
		"Create":        {[]string{"--root", "/run/runc", "create", "--bundle", "/b", "--pid-file", "/p", "id"}, call{creates: true, bundle: "/b"}},
		"RunShort":      {[]string{"run", "-b", "/b", "id"}, call{creates: true, bundle: "/b"}},
		"Joined":        {[]string{"create", "--bundle=/b", "id"}, call{creates: true, bundle: "/b"}},
		"Here":          {[]string{"create", "id"}, call{creates: true, bundle: "."}},
		"Exec":          {[]string{"--log-format", "json", "exec", "--process", "/p", "--detach", "id"}, call{bundle: ".", process: "/p"}},
		"Update":        {[]string{"update", "--resources", "-", "id"}, call{bundle: ".", updates: true}},
		"SomethingElse": {[]string{"state", "id"}, call{bundle: "."}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, parse(tc.args), cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("parse(%v): -want, +got:\n%s", tc.args, diff)
			}
		})
	}
}
