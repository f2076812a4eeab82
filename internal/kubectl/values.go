// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/plan"
)

// span is a flag for a length of time. Days and weeks are 24 and 168 hours. It is a pflag.Value, as the types below are.
type span time.Duration

var errSpan = errors.New("write a whole number followed by w, d, h, m or s, such as 7d, at most 366d")

var units = map[byte]time.Duration{
	'w': 7 * 24 * time.Hour,
	'd': 24 * time.Hour,
	'h': time.Hour,
	'm': time.Minute,
	's': time.Second,
}

func (s *span) Set(text string) error {
	if text == "" {
		return errSpan
	}
	number, unit := text[:len(text)-1], units[text[len(text)-1]]
	n, err := strconv.ParseUint(number, 10, 32) // times a week fits 64 bits
	if err != nil || unit == 0 || time.Duration(n) > plan.Longest/unit {
		return errSpan
	}
	*s = span(time.Duration(n) * unit)
	return nil
}

func (*span) Type() string { return "length" }

func (s *span) String() string {
	if d := time.Duration(*s); d%units['d'] == 0 {
		return strconv.FormatInt(int64(d/units['d']), 10) + "d"
	}
	return time.Duration(*s).String()
}

// instant is a flag for a point in time, zero if it is not given. If now is set, the flag also takes how long ago it was.
type instant struct {
	time.Time
	now func() time.Time
}

func (i *instant) Set(text string) error {
	var ago span
	if i.now != nil && ago.Set(text) == nil {
		i.Time = i.now().Add(-time.Duration(ago))
		return nil
	}
	t, err := time.Parse(time.RFC3339, text)
	switch {
	case err == nil:
		i.Time = t
		return nil
	case i.now != nil:
		return errors.New("write how long ago, such as 2h or 7d, or RFC 3339 with a zone, such as 2025-01-15T09:00:00Z")
	default:
		return errors.New("write RFC 3339 with a zone, such as 2025-01-15T09:00:00Z or 2025-01-15T09:00:00+01:00")
	}
}

func (*instant) Type() string { return "time" }

func (i *instant) String() string {
	if i.IsZero() {
		return ""
	}
	return i.Format(time.RFC3339Nano)
}

// choice is a flag for a selection of known words. An empty selection selects all.
type choice struct{ of, chosen []string }

func choiceOf[T ~string](of []T) choice {
	return choice{of: convert(of, func(word T) string { return string(word) })}
}

func (c *choice) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		if !slices.Contains(c.of, word) {
			return errors.New("write one or more of " + c.all())
		}
		c.chosen = append(c.chosen, word)
	}
	return nil
}

func (*choice) Type() string { return "words" }

func (c *choice) String() string { return strings.Join(c.chosen, ",") }

func (c *choice) all() string { return strings.Join(c.of, ", ") }

func (c *choice) has(word string) bool { return len(c.chosen) == 0 || slices.Contains(c.chosen, word) }

// The forms of output. A wide table may exceed the width of a terminal.
const (
	text   = "text"
	wide   = "wide"
	asJSON = "json"
)

// format is a flag for the form of the output.
type format struct {
	value string
	// of are the forms that the command has.
	of []string
}

// textOr returns the flag of a command with text and other forms of output.
func textOr(others ...string) format { return format{text, append([]string{text}, others...)} }

func (f *format) Set(s string) error {
	if !slices.Contains(f.of, s) {
		return errors.New("write " + f.all())
	}
	f.value = s
	return nil
}

func (*format) Type() string { return "format" }

func (f *format) String() string { return f.value }

func (f *format) all() string {
	last := len(f.of) - 1
	return strings.Join(f.of[:last], ", ") + " or " + f.of[last]
}
