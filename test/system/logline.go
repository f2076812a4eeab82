// SPDX-License-Identifier: Apache-2.0

package system

import (
	"strconv"
	"strings"
	"time"
)

// A LogLine is a line of the agent's log: pairs as log/slog's text handler writes
// them.
type LogLine map[string]string

// ParseLog reads the lines of an agent's log. What is no pair is left out.
func ParseLog(text string) []LogLine {
	var lines []LogLine
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			break // still being written
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

// Message is what the line says.
func (l LogLine) Message() string { return l["msg"] }

// Time is when it was written, in whole milliseconds; zero if it does not say.
func (l LogLine) Time() time.Time {
	t, err := time.Parse(time.RFC3339Nano, l["time"])
	if err != nil {
		return time.Time{}
	}
	return t
}
