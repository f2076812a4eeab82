// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxDuration is the maximum of a duration. A machine that takes a day to leave has missed its next window.
const maxDuration = 24 * time.Hour

// ParseDuration parses an integer with one unit, s, m or h, between 0s and 24h, such as "5m". Its error is a
// *FieldError without a field.
func ParseDuration(s string) (time.Duration, error) {
	d, err := parseDuration(strings.Trim(s, " \t\n\v\f\r"))
	if err != nil {
		return 0, &FieldError{
			Value:  clip(s),
			Reason: err.Error(),
			Help:   "write a whole number followed by s, m or h, such as 5m, at most 24h",
		}
	}
	return d, nil
}

func parseDuration(s string) (time.Duration, error) {
	if s == "" {
		return 0, reason("Invalid duration: empty")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		return 0, reason(fmt.Sprintf("Invalid duration (non-ASCII): %q", clip(s)))
	}
	number, unit := s[:len(s)-1], s[len(s)-1]
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, reason("Invalid duration value: " + clip(s))
	}
	seconds, ok := map[byte]uint64{'s': 1, 'm': 60, 'h': 3600}[unit]
	if !ok {
		return 0, reason(fmt.Sprintf("Invalid duration unit: '%c'. Use 's', 'm', or 'h'", unit))
	}
	limit := uint64(maxDuration / time.Second)
	switch {
	case n > limit && n*seconds/seconds != n: // more seconds than fit into the type
		return 0, reason(fmt.Sprintf("Duration %s exceeds maximum of %ds (24h)", clip(s), limit))
	case n*seconds > limit:
		return 0, reason(fmt.Sprintf("Duration %ds exceeds maximum of %ds (24h)", n*seconds, limit))
	}
	return time.Duration(n*seconds) * time.Second, nil //nolint:gosec // at most 86400
}
