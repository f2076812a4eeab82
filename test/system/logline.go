// SPDX-License-Identifier: Apache-2.0

package system

import (
	"strconv"
	"strings"
	"time"
)

// LogLine is a line of the agent's log: the key-value pairs of log/slog's text handler.
type LogLine map[string]string

// ParseLog parses the lines of an agent's log. It ignores text that is not a pair.
func ParseLog(text string) []LogLine {
	var lines []LogLine
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // The line is still being written.
		}
		lines = append(lines, parseLine(strings.TrimSuffix(line, "\n")))
	}
	return lines
}

func parseLine(line string) LogLine {
	pairs := LogLine{}
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			break
		}
		value, err := strconv.QuotedPrefix(rest)
		if err == nil {
			rest = rest[len(value):]
			value, _ = strconv.Unquote(value)
		} else {
			value, _, _ = strings.Cut(rest, " ")
			rest = rest[len(value):]
		}
		pairs[key] = value
		line = strings.TrimPrefix(rest, " ")
	}
	return pairs
}

// Message returns the message of the line.
func (l LogLine) Message() string { return l["msg"] }

// Time returns the time of the line in whole milliseconds, zero if it has none.
func (l LogLine) Time() time.Time {
	t, err := time.Parse(time.RFC3339Nano, l["time"])
	if err != nil {
		return time.Time{}
	}
	return t
}
