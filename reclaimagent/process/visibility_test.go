// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// hiding is a root whose mount hides processes.
type hiding struct {
	root
	options string
}

func (h hiding) hiding() string { return h.options }

func TestCheckVisibility(t *testing.T) {
	const (
		all      = "000001ffffffffff"
		netAdmin = "0000000000001000"
		ptrace   = "0000000000080000"
		none     = "0000000000000000"
		hidepid  = "hidepid=invisible,gid=4321"
	)
	status := func(uids, permitted, effective string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("Name:\tx\nUid:\t" + uids + "\nCapPrm:\t" + permitted + "\nCapEff:\t" + effective + "\n")}
	}
	const root, other = "0\t0\t0\t0", "65532\t65532\t65532\t65532"
	cases := map[string]struct {
		reason  string
		proc    fstest.MapFS
		self    int
		options string
		want    string
	}{
		"Group": {
			reason: "Process 1 has rights that the agent lacks: the group lets the agent read it, and all others.", self: 7, options: hidepid,
			proc: fstest.MapFS{"1/status": status(root, all, all), "7/status": status(root, netAdmin, netAdmin)},
		},
		"OtherUser": {
			reason: "So has any process of another user.", self: 7, options: hidepid,
			proc: fstest.MapFS{"1/status": status(root, none, none), "7/status": status(other, none, none)},
		},
		"MayTrace": {
			reason: "From CAP_SYS_PTRACE nothing is hidden.", self: 7, options: hidepid,
			proc: fstest.MapFS{"1/status": status(root, none, none), "7/status": status(root, ptrace, ptrace)},
		},
		"Unreadable": {
			reason: "Process 1 always exists.", self: 7, options: hidepid, want: "reading process 1: process: file does not exist (hidepid=invisible,gid=4321)",
			proc: fstest.MapFS{"7/status": status(root, netAdmin, netAdmin)},
		},
		"NoProof": {
			reason: "The agent may read a process of its user with no more rights than its own, whatever is hidden.", self: 7, options: hidepid, want: "no right that the agent lacks",
			proc: fstest.MapFS{"1/status": status(root, netAdmin, netAdmin), "7/status": status(root, netAdmin, netAdmin)},
		},
		"NoProofNeeded": {
			reason: "Without the option nothing is hidden.", self: 7,
			proc: fstest.MapFS{"1/status": status(root, netAdmin, netAdmin), "7/status": status(root, netAdmin, netAdmin)},
		},
		"OtherNamespace": {
			reason: "An agent that is not among the processes has unknown rights.", options: hidepid, want: "no right that the agent lacks",
			proc: fstest.MapFS{"1/status": status(root, all, all)},
		},
		"OwnContainer": {
			reason: "An agent that is process 1 sees its container only.", self: 1, want: "own container",
			proc: fstest.MapFS{"1/status": status(root, all, all)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			table := FromFS(tc.proc, tc.self)
			table.root = hiding{table.root, tc.options}
			err := table.CheckVisibility()
			if tc.want == "" && err == nil {
				return
			}
			if tc.want == "" || !errors.Is(err, ErrHidden) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nCheckVisibility() = %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
