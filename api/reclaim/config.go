// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultPollInterval is used where a [Config] names none.
	DefaultPollInterval = 250 * time.Millisecond
	// MaxPollInterval bounds a [Config] against a slip of units: an owner who
	// waits longer than this has no use for the agent.
	MaxPollInterval = time.Minute
)

// Config says which processes ask for the machine back. The zero Config is
// inert: it matches nothing.
type Config struct {
	// MatchCommands are compared with the kernel's name of a process
	// (/proc/<pid>/comm, at most 15 bytes), byte for byte.
	MatchCommands []string
	// MatchArgvSubstrings are looked for in the arguments of a process, joined
	// by blanks, byte for byte.
	MatchArgvSubstrings []string
	// PollInterval is the time between two looks at all processes where the
	// kernel does not announce them. Zero means [DefaultPollInterval].
	PollInterval time.Duration
}

// ConfigFor returns what spec.killIfCommands asks for: every command is both a
// name and a substring of the arguments. Empty strings are left out, because an
// empty substring is part of every command line.
func ConfigFor(killIfCommands []string) Config {
	patterns := slices.DeleteFunc(slices.Clone(killIfCommands), func(s string) bool { return s == "" })
	return Config{MatchCommands: patterns, MatchArgvSubstrings: slices.Clone(patterns)}
}

// Inert reports whether no process can ever match.
func (c Config) Inert() bool {
	return len(c.MatchCommands) == 0 && len(c.MatchArgvSubstrings) == 0
}

// Interval returns PollInterval in whole milliseconds, at least one and at most
// [MaxPollInterval], and [DefaultPollInterval] for zero or less.
func (c Config) Interval() time.Duration {
	if c.PollInterval <= 0 {
		return DefaultPollInterval
	}
	whole := (c.PollInterval + time.Millisecond - 1).Truncate(time.Millisecond)
	return min(whole, MaxPollInterval)
}

// Text returns c as the reclaim.toml that the agent parses. The same Config
// gives the same bytes. Patterns that are not UTF-8, which TOML cannot hold,
// have the offending bytes replaced by U+FFFD, as the ConfigMap would do.
func (c Config) Text() string {
	return "# Generated from spec.killIfCommands; changes are overwritten.\n" + c.body()
}

func (c Config) body() string {
	var b strings.Builder
	writeList(&b, "match_commands", c.MatchCommands)
	writeList(&b, "match_argv_substrings", c.MatchArgvSubstrings)
	b.WriteString("poll_interval_ms = ")
	b.WriteString(strconv.FormatInt(c.Interval().Milliseconds(), 10))
	b.WriteByte('\n')
	return b.String()
}

func writeList(b *strings.Builder, key string, values []string) {
	b.WriteString(key)
	b.WriteString(" = [")
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		writeString(b, v)
	}
	b.WriteString("]\n")
}

// writeString writes a TOML basic string. TOML v1.0.0 wants quotation mark,
// backslash and the control characters other than tab escaped; everything else
// stands for itself. Ranging over s turns bytes that are not UTF-8 into U+FFFD.
func writeString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
