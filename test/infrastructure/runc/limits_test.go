// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const config = `{"ociVersion":"1.2.0","process":{"args":["work"]},"linux":{"cgroupsPath":"/kubepods/pod1/c","resources":{
	"devices":[{"allow":false}],
	"cpu":{"shares":10,"quota":50000,"period":100000,"cpus":"0-1"},
	"memory":{"limit":18446744073709551615},
	"pids":{"limit":7},
	"hugepageLimits":[{"pageSize":"2MB","limit":0}],
	"unified":{"memory.oom.group":"1","pids.max":"7"}}}}`

func TestWithoutLimits(t *testing.T) {
	cases := map[string]struct {
		reason, controllers, resources string
	}{
		"None": {
			reason: "Devices need no controller.", controllers: "\n",
			resources: `{"devices":[{"allow":false}],"cpu":{},"unified":{}}`,
		},
		"HugeTLB": {
			reason: "What a machine keeps in version 1 is not in version 2.", controllers: "hugetlb\n",
			resources: `{"devices":[{"allow":false}],"cpu":{},"hugepageLimits":[{"pageSize":"2MB","limit":0}],"unified":{}}`,
		},
		"CPUWithoutSet": {
			reason: "cpu and cpuset share a field.", controllers: "cpu pids\n",
			resources: `{"devices":[{"allow":false}],"cpu":{"shares":10,"quota":50000,"period":100000},"pids":{"limit":7},"unified":{"pids.max":"7"}}`,
		},
		"SetWithoutCPU": {
			reason: "cpu and cpuset share a field.", controllers: "cpuset\n",
			resources: `{"devices":[{"allow":false}],"cpu":{"cpus":"0-1"},"unified":{}}`,
		},
		"Memory": {
			reason: "Numbers keep all of their digits.", controllers: "memory\n",
			resources: `{"devices":[{"allow":false}],"cpu":{},"memory":{"limit":18446744073709551615},"unified":{"memory.oom.group":"1"}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := withoutLimits([]byte(config), tc.controllers)
			if err != nil {
				t.Fatal(err)
			}
			want := parse(t, []byte(config))
			want["linux"] = json.RawMessage(`{"cgroupsPath":"/kubepods/pod1/c","resources":` + tc.resources + `}`)
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sorted(t, text), sorted(t, got)); diff != "" {
				t.Errorf("%s\nwithoutLimits(%q): -want, +got:\n%s", tc.reason, tc.controllers, diff)
			}
		})
	}
}

func TestWithoutLimitsOfWhatHasNone(t *testing.T) {
	for _, config := range []string{`{}`, `{"linux":{}}`, `{"linux":{"resources":null}}`, `{"linux":{"resources":{}}}`} {
		if got, err := withoutLimits([]byte(config), ""); err != nil || string(got) != config {
			t.Errorf("withoutLimits(%s) = %s, %v", config, got, err)
		}
	}
	if _, err := withoutLimits([]byte(`[`), ""); err == nil {
		t.Error("what is no configuration must be refused")
	}
}

func TestBundleOf(t *testing.T) {
	cases := map[string]struct {
		args   []string
		bundle string
	}{
		"Create": {[]string{"runc", "--root", "/r", "create", "--bundle", "/b", "--pid-file", "/p", "id"}, "/b"},
		"Exec":   {[]string{"runc", "--root", "/r", "exec", "--process", "/p", "create"}, ""},
		"Delete": {[]string{"runc", "delete", "id"}, ""},
		"Broken": {[]string{"runc", "create", "--bundle"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := bundleOf(tc.args); got != tc.bundle || ok != (tc.bundle != "") {
				t.Errorf("bundleOf(%q) = %q, %v", tc.args, got, ok)
			}
		})
	}
}

// sorted writes JSON in one way, with all digits.
func sorted(t *testing.T, text []byte) string {
	t.Helper()
	out, err := withoutLimits(text, "cpu cpuset memory pids io hugetlb rdma")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func parse(t *testing.T, text []byte) map[string]json.RawMessage {
	t.Helper()
	var out map[string]json.RawMessage
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
