// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ErrHidden means that the processes of other users cannot be read, or that this is not certain.
var ErrHidden = errors.New("the processes of other users cannot be read")

// capSysPtrace is CAP_SYS_PTRACE in <linux/capability.h>. hidepid hides no process from a process with it.
const capSysPtrace = 19

// CheckVisibility returns nil if the table shows the processes of other users. Otherwise, or if that is not certain,
// the error wraps [ErrHidden].
//
// The check reads process 1. hidepid (proc(5)) shows a process to the members of a group, and to processes that may
// trace it. So if process 1 is readable and may not be traced, the group or the absence of hidepid is the reason, and
// all processes are readable.
func (t *Table) CheckVisibility() error {
	if t.self == 1 {
		return fmt.Errorf("%w: process 1 is the agent, so the proc root is the agent's own container's", ErrHidden)
	}
	raw, err := t.readHead(1, statusFile)
	if err != nil {
		return fmt.Errorf("%w: reading process 1: %w%s", ErrHidden, err, inBrackets(t.root.hiding()))
	}
	first := parseCredentials(raw)
	if raw, err = t.readHead(t.self, statusFile); err == nil && !parseCredentials(raw).mayTrace(first) {
		return nil
	}
	if options := t.root.hiding(); options != "" {
		return fmt.Errorf("%w: process 1 is readable, but has no right that the agent lacks, so others may be hidden%s", ErrHidden, inBrackets(options))
	}
	return nil
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// credentials are the user IDs and capabilities in a status file.
type credentials struct {
	// uids are the real, effective, saved and file system user IDs.
	uids                 []string
	permitted, effective uint64
}

func parseCredentials(status []byte) credentials {
	var c credentials
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "Uid":
			for id := range bytes.FieldsSeq(value) {
				c.uids = append(c.uids, string(id))
			}
		case "CapPrm":
			c.permitted, _ = strconv.ParseUint(string(value), 16, 64)
		case "CapEff":
			c.effective, _ = strconv.ParseUint(string(value), 16, 64)
		}
	}
	return c
}

// root reports whether the real and the effective user are root.
func (c credentials) root() bool {
	return len(c.uids) >= 2 && c.uids[0] == "0" && c.uids[1] == "0"
}

// mayTrace reports whether c may ptrace other without CAP_SYS_PTRACE: same user IDs, and no fewer capabilities. In that
// case a successful read of other proves nothing about hidepid.
func (c credentials) mayTrace(other credentials) bool {
	if c.effective>>capSysPtrace&1 == 1 {
		return false // It can read every process.
	}
	return slices.Equal(c.uids, other.uids) && other.permitted&^c.effective == 0
}
