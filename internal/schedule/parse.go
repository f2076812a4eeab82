// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxItems is the maximum length of a list. Seven days and 24 hours fit with one item each, so a longer
	// list is redundant.
	MaxItems = 32

	// MaxItemBytes is the maximum length of an item. A list of all hours with spaces has 92 bytes. Two lists of
	// maximum size have 16 KiB, so they fit into a condition message of 32 KiB, which repeats the schedule.
	MaxItemBytes = 256
)

var dayNames = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// grammar has the differences between a list of days and a list of hours.
type grammar struct {
	field  string
	reason string // prefix of every reason
	help   string
	size   int // of the set
	part   func(string) (first, last int, err error)
}

var (
	dayGrammar = grammar{
		field:  "daysOfWeek",
		reason: "Failed to parse weekdays: ",
		help:   "days are mon, tue, wed, thu, fri, sat, sun, a range is mon-fri",
		size:   daysPerWeek,
		part:   parseDayPart,
	}
	hourGrammar = grammar{
		field:  "hoursOfDay",
		reason: "Failed to parse hours: ",
		help:   "hours are 0-23, a range is 9-17",
		size:   hoursPerDay,
		part:   parseHourPart,
	}
)

// parse returns the union of all items as a bit set.
func (g grammar) parse(items []string) (uint32, error) {
	if len(items) > MaxItems {
		r := fmt.Sprintf("%d items, at most %d are allowed", len(items), MaxItems)
		return 0, &FieldError{Field: g.field, Value: clip(strings.Join(items[:MaxItems], ",")), Reason: g.reason + r, Help: g.help}
	}
	var set uint32
	var errs []error
	for i, item := range items {
		bits, err := g.parseItem(item)
		if err != nil {
			errs = append(errs, &FieldError{
				Field:  fmt.Sprintf("%s[%d]", g.field, i),
				Value:  clip(item),
				Reason: g.reason + err.Error(),
				Help:   g.help,
			})
		}
		set |= bits
	}
	return set, errors.Join(errs...)
}

// parseItem parses one comma-separated list.
func (g grammar) parseItem(item string) (uint32, error) {
	if len(item) > MaxItemBytes {
		return 0, reason(fmt.Sprintf("%d bytes, at most %d are allowed", len(item), MaxItemBytes))
	}
	var set uint32
	for part := range strings.SplitSeq(item, ",") {
		first, last, err := g.part(strings.TrimSpace(part))
		if err != nil {
			return 0, err
		}
		for i := first; ; i = (i + 1) % g.size { // wraps around, as from fri to mon
			set |= 1 << i
			if i == last {
				break
			}
		}
	}
	return set, nil
}

func parseDayPart(part string) (first, last int, err error) {
	return parseEnds(part, "Invalid day range: ", parseDay)
}

func parseHourPart(part string) (first, last int, err error) {
	if strings.HasPrefix(part, "-") { // a negative number, not a range without a start
		return 0, 0, reason("Invalid hour: " + part)
	}
	first, last, err = parseEnds(part, "Invalid hour range: ", parseHour)
	switch {
	case err != nil, max(first, last) < hoursPerDay:
		return first, last, err
	case strings.Contains(part, "-"):
		return 0, 0, reason("Hours must be 0-23, got: " + part)
	default:
		return 0, 0, reason(fmt.Sprintf("Hour must be 0-23, got: %d", first))
	}
}

// parseEnds parses a value, which is both ends, or a range.
func parseEnds(part, invalid string, parse func(string) (int, error)) (first, last int, err error) {
	from, to, isRange := strings.Cut(part, "-")
	switch {
	case !isRange:
		to = from
	case strings.Contains(to, "-"):
		return 0, 0, reason(invalid + part)
	}
	if first, err = parse(strings.TrimSpace(from)); err != nil {
		return 0, 0, err
	}
	last, err = parse(strings.TrimSpace(to))
	return first, last, err
}

func parseDay(name string) (int, error) {
	day := slices.Index(dayNames, name)
	if day < 0 {
		return 0, reason("Invalid day: " + name)
	}
	return day, nil
}

// parseHour parses a number of up to one byte. The caller checks that it is an hour. It accepts one plus sign,
// as earlier versions did.
func parseHour(number string) (int, error) {
	hour, err := strconv.ParseUint(strings.TrimPrefix(number, "+"), 10, 8)
	if err != nil {
		return 0, reason("Invalid hour: " + number)
	}
	return int(hour), nil
}
