// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// config is one that containerd writes, but for what is not looked at. A limit may have
// more digits than a float64.
const (
	process   = `"process":{"args":["work"],"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"]}}`
	resources = `{"devices":[{"allow":false}],` +
		`"cpu":{"shares":10,"quota":50000,"period":100000,"cpus":"0-1"},` +
		`"memory":{"limit":18446744073709551615},"pids":{"limit":7},` +
		`"hugepageLimits":[{"pageSize":"2MB","limit":0}],"unified":{"memory.oom.group":"1","pids.max":"7"}}`
)

func TestTrimTakesOutWhatCannotBeHad(t *testing.T) {
	root := machine{resource: true}
	cases := map[string]struct {
		reason             string
		machine            machine
		process, resources string
	}{
		"NothingIsMissing": {
			reason:  "On an ordinary machine containers get what they ask for, to the last digit.",
			machine: machine{controllers: []string{"cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma"}, resource: true},
			process: process, resources: resources,
		},
		"Version1": {
			reason:  "On control groups of version 1 runc knows by itself.",
			machine: root, process: process, resources: resources,
		},
		"NoControllers": {
			reason:  "runc refuses a limit whose controller is not there; device rules need none.",
			machine: machine{controllers: []string{}, resource: true},
			process: process, resources: `{"devices":[{"allow":false}],"cpu":{},"unified":{}}`,
		},
		"HugeTLB": {
			reason:  "What a machine keeps in version 1 is not in version 2.",
			machine: machine{controllers: []string{"hugetlb"}, resource: true},
			process: process, resources: `{"devices":[{"allow":false}],"cpu":{},"hugepageLimits":[{"pageSize":"2MB","limit":0}],"unified":{}}`,
		},
		"CPUWithoutSet": {
			reason:  "cpu and cpuset share a field.",
			machine: machine{controllers: []string{"cpu", "pids"}, resource: true},
			process: process, resources: `{"devices":[{"allow":false}],"cpu":{"shares":10,"quota":50000,"period":100000},"pids":{"limit":7},"unified":{"pids.max":"7"}}`,
		},
		"SetWithoutCPU": {
			reason:  "cpu and cpuset share a field.",
			machine: machine{controllers: []string{"cpuset"}, resource: true},
			process: process, resources: `{"devices":[{"allow":false}],"cpu":{"cpus":"0-1"},"unified":{}}`,
		},
		"Memory": {
			reason:  "Numbers keep all of their digits.",
			machine: machine{controllers: []string{"memory"}, resource: true},
			process: process, resources: `{"devices":[{"allow":false}],"cpu":{},"memory":{"limit":18446744073709551615},"unified":{"memory.oom.group":"1"}}`,
		},
		"NoCapability": {
			reason:  "The kernel refuses a capability that is not in the bounding set.",
			machine: machine{}, resources: resources,
			process: `"process":{"args":["work"],"capabilities":{"bounding":["CAP_KILL"]}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := edited(t, `{`+process+`,"linux":{"cgroupsPath":"/kubepods/pod1/c","resources":`+resources+`}}`, tc.machine.trim)
			want := sorted(t, `{`+tc.process+`,"linux":{"cgroupsPath":"/kubepods/pod1/c","resources":`+tc.resources+`}}`)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\ntrim(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTrimLeavesWhatHasNoLimits(t *testing.T) {
	for _, config := range []string{`{}`, `{"linux":{}}`, `{"linux":{"resources":null}}`, `{"linux":{"resources":{}},"process":{}}`} {
		if got := edited(t, config, machine{controllers: []string{}}.trim); got != config {
			t.Errorf("trim(%s) = %s", config, got)
		}
	}
}

func TestEditRefusesWhatIsNoConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := edit(path, machine{}.trim); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if err := edit(path+".gone", machine{}.trim); err != nil {
		t.Errorf("a file that is not there is runc's to refuse: %v", err)
	}
}

func TestHasResource(t *testing.T) {
	for status, want := range map[string]bool{
		"Name:\trunc\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n": true,
		"Name:\trunc\nCapBnd:\t000001fffeffffff\nCapAmb:\t0000000000000000\n": false,
	} {
		if got, err := hasResource(status); got != want || err != nil {
			t.Errorf("hasResource(%q) = %t, %v", status, got, err)
		}
	}
	for _, status := range []string{"", "Name:\trunc\n", "x\nCapBnd:\tmany\n"} {
		if _, err := hasResource(status); err == nil {
			t.Errorf("hasResource(%q) reports no error", status)
		}
	}
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

// edited is what edit makes of a file.
func edited(t *testing.T, config string, change func(map[string]any)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := edit(path, change); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// sorted is JSON with its keys in the order in which they are written.
func sorted(t *testing.T, text string) string {
	t.Helper()
	return edited(t, text, func(map[string]any) {})
}
