// SPDX-License-Identifier: Apache-2.0

package departure

import (
	"fmt"
	"strconv"
	"strings"
)

// A Fraction is a part of a Cluster's machines, in millionths: 50000 is one in twenty. Zero
// is no limit. It is a whole number because 0.29 of 100 machines are 29, and the nearest
// binary fraction to 0.29 makes 28 of them.
type Fraction int64

// whole is all machines; a fraction has as many digits after the point as whole has zeros.
const (
	whole  = Fraction(1_000_000)
	digits = 6
)

// ParseFraction reads a decimal number from 0 to 1, such as "0.05". An error names the text
// and what would be right.
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

// Of is how many of n machines the fraction is: rounded down, and at least one, because
// else nobody would ever leave a small Cluster. Zero of any is zero.
func (f Fraction) Of(n int) int {
	if f <= 0 {
		return 0
	}
	return max(1, int(int64(n)*int64(f)/int64(whole)))
}

// String is the fraction as ParseFraction reads it.
func (f Fraction) String() string { return decimal(f, digits) }

// percent is the fraction as people say it.
func (f Fraction) percent() string { return decimal(f, digits-2) + "%" }

// decimal writes n with its last digits after the point, as short as it can be.
func decimal(n Fraction, digits int) string {
	s := fmt.Sprintf("%0*d", digits+1, n)
	units, decimals := s[:len(s)-digits], strings.TrimRight(s[len(s)-digits:], "0")
	if decimals == "" {
		return units
	}
	return units + "." + decimals
}

// MarshalText is String, for a flag. It never fails.
func (f Fraction) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is ParseFraction, for a flag.
func (f *Fraction) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFraction(string(text))
	return err
}
