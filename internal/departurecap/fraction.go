// SPDX-License-Identifier: Apache-2.0

package departurecap

import (
	"fmt"
	"strconv"
	"strings"
)

// A Fraction is a part of a Cluster's machines, in millionths: 50000 is 5%. Zero means no limit. It is an
// integer because the floating-point product of 0.29 and 100 rounds down to 28.
type Fraction int64

// whole is 100%. A fraction has as many decimal digits as whole has zeros.
const (
	whole  = Fraction(1_000_000)
	digits = 6
)

// ParseFraction parses a decimal number from 0 to 1, such as "0.05". The error names the text and the accepted
// form.
func ParseFraction(s string) (Fraction, error) {
	f, ok := parse(s)
	if !ok {
		return 0, fmt.Errorf("%q is no fraction: write a decimal number from 0 to 1 with at most %d digits after the point, such as 0.05; 0 is no limit", s, digits)
	}
	return f, nil
}

func parse(s string) (f Fraction, ok bool) {
	units, decimals, point := strings.Cut(s, ".")
	decimals = strings.TrimRight(decimals, "0")
	if units == "" || point && strings.HasSuffix(s, ".") || len(decimals) > digits {
		return 0, false
	}
	for _, r := range units + decimals {
		if r < '0' || r > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(units+decimals+strings.Repeat("0", digits-len(decimals)), 10, 64)
	if f = Fraction(n); err != nil || f > whole {
		return 0, false
	}
	return f, true
}

// Of returns the fraction of n machines, rounded down but at least 1. Otherwise no machine of a small Cluster
// could leave. A zero Fraction returns 0.
func (f Fraction) Of(n int) int {
	if f <= 0 {
		return 0
	}
	return max(1, int(int64(n)*int64(f)/int64(whole)))
}

// String returns the fraction in the form that ParseFraction parses.
func (f Fraction) String() string { return decimal(f, digits) }

// percent returns the fraction as a percentage.
func (f Fraction) percent() string { return decimal(f, digits-2) + "%" }

// decimal formats n with the given number of decimal digits, without trailing zeros.
func decimal(n Fraction, digits int) string {
	s := fmt.Sprintf("%0*d", digits+1, n)
	units, decimals := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	if decimals == "" {
		return units
	}
	return units + "." + decimals
}

// MarshalText returns String for a flag. It never fails.
func (f Fraction) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is ParseFraction for a flag.
func (f *Fraction) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFraction(string(text))
	return err
}
