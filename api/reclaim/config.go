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
	// DefaultPollInterval applies if a [Config] has no PollInterval.
	DefaultPollInterval = 250 * time.Millisecond
	// MaxPollInterval bounds PollInterval, against a mistake in its unit. A longer interval would be useless to a
	// waiting owner.
	MaxPollInterval = time.Minute
)

// Config selects the processes that trigger a reclaim. The zero Config is inert: it matches no process.
type Config struct {
	// MatchCommands are compared with the kernel's name of a process (/proc/<pid>/comm, at most 15 bytes), byte for
	// byte.
	MatchCommands []string
	// MatchArgvSubstrings are compared with the arguments of a process, joined by blanks, byte for byte.
	MatchArgvSubstrings []string
	// PollInterval is the time between two scans of all processes, where the kernel does not announce them. Zero means
	// [DefaultPollInterval].
	PollInterval time.Duration
	// Hold is what the agent does about the pods of its Node as soon as a process matches. Empty means [HoldNone].
	Hold Hold
}

// Hold is what the agent does about the pods of its Node until the machine is gone.
type Hold string

const (
	// HoldNone leaves the pods as they are.
	HoldNone Hold = "None"
	// HoldFreeze freezes all pods but the agent's own and static pods, and kills the pods that it sees hold a device,
	// because a GPU goes on with work that is queued, and keeps its memory.
	HoldFreeze Hold = "Freeze"
	// HoldFreezeOnly freezes all pods but the agent's own and static pods, and kills none.
	HoldFreezeOnly Hold = "FreezeOnly"
	// HoldKill freezes all pods but the agent's own and static pods, and kills them once the request is on the Node.
	HoldKill Hold = "Kill"
)

// Enabled reports whether h is one of the values that change pods. It returns false for an unknown value.
func (h Hold) Enabled() bool { return h == HoldFreeze || h == HoldFreezeOnly || h == HoldKill }

// ConfigFor returns the Config for spec.killIfCommands. Each command is both a process name and a substring of the
// arguments. It omits empty strings, because every command line contains the empty substring.
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

// Text returns c as the reclaim.toml that the agent parses. Equal Configs give equal bytes. TOML cannot hold patterns
// that are not UTF-8: invalid bytes become U+FFFD, as in a ConfigMap.
func (c Config) Text() string {
	return "# Generated from spec.killIfCommands; changes are overwritten.\n" + c.body()
}

// Adds reports whether c has a pattern that a text of another Config lacks.
func (c Config) Adds(text string) bool {
	text = WithHold(text, HoldNone)
	var had []string
	for at := strings.IndexByte(text, '"'); at >= 0; at = strings.IndexByte(text, '"') {
		s, err := strconv.QuotedPrefix(text[at:]) // Go reads all strings that quote returns.
		if err != nil {
			break
		}
		had, text = append(had, s), text[at+len(s):]
	}
	return slices.ContainsFunc(slices.Concat(c.MatchCommands, c.MatchArgvSubstrings), func(pattern string) bool {
		return !slices.Contains(had, quote(pattern))
	})
}

// TextHasHold reports whether a text of a Config has a hold.
func TextHasHold(text string) bool { return strings.Contains(text, "\n"+holdKey+" = ") }

// WithHold returns a text of a Config with another hold.
func WithHold(text string, h Hold) string {
	before, _, found := strings.Cut(text, "\n"+holdKey+" = ") // It is the last key.
	if found {
		before += "\n"
	}
	return before + h.line()
}

// holdKey is the key of Config.Hold in a text. Only a key is at the start of a line.
const holdKey = "reclaim_hold"

// line returns the line of a text with h, empty for [HoldNone]: an agent of an earlier build rejects a key that it does
// not know.
func (h Hold) line() string {
	if !h.Enabled() {
		return ""
	}
	return holdKey + " = " + strconv.Quote(string(h)) + "\n"
}

func (c Config) body() string {
	return fmt.Sprintf("match_commands = [%s]\nmatch_argv_substrings = [%s]\npoll_interval_ms = %d\n%s",
		quoteAll(c.MatchCommands), quoteAll(c.MatchArgvSubstrings), c.Interval().Milliseconds(), c.Hold.line())
}

func quoteAll(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = quote(v)
	}
	return strings.Join(quoted, ", ")
}

// quote returns a TOML basic string. TOML v1.0.0 requires an escape for quotation mark, backslash and control
// characters other than tab. The range over s turns invalid UTF-8 into U+FFFD.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
