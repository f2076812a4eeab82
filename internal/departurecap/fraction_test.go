// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

func TestOf(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		fraction string
		n, want  int
	}{
		{"Case 1: an empty Cluster has no candidates.", "0.05", 0, 1},
		{"Case 1: at least one.", "0.05", 1, 1},
		{"Case 1: rounded down.", "0.05", 19, 1},
		{"Case 1: rounded down.", "0.05", 21, 1},
		{"Case 1: exactly two.", "0.05", 40, 2},
		{"Case 1.", "0.05", 100, 5},
		{"Case 1.", "0.25", 40, 10},
		{"Case 1.", "0.5", 7, 3},
		{"Case 2: 28 by binary fractions.", "0.29", 100, 29},
		{"Case 2: 56 by binary fractions.", "0.57", 100, 57},
		{"Case 2: 57 by binary fractions.", "0.58", 100, 58},
		{"Case 10: one less than two.", "0.05", 39, 1},
		{"All of them.", "1", 5000, 5000},
		{"The smallest that can be said.", "0.000001", 1_999_999, 1},
		{"The smallest that can be said.", "0.000001", 2_000_000, 2},
		{"Case 3: no limit.", "0", 40, 0},
	} {
		if got := fraction(tc.fraction).Of(tc.n); got != tc.want {
			t.Errorf("%s of %d = %d, want %d: %s", tc.fraction, tc.n, got, tc.want, tc.reason)
		}
	}
}

func TestHundredthsAreExact(t *testing.T) {
	for i := 1; i <= 100; i++ {
		text := fmt.Sprintf("%d.%02d", i/100, i%100)
		if got := fraction(text).Of(100); got != i {
			t.Errorf("%s of 100 = %d", text, got)
		}
	}
}

func TestParseFraction(t *testing.T) {
	for text, want := range map[string]departurecap.Fraction{
		"0": 0, "0.0": 0, "1": 1_000_000, "1.000": 1_000_000, "0.05": 50_000, "0.050000000": 50_000,
		"0.000001": 1, "0.999999": 999_999, "00.5": 500_000,
	} {
		if got, err := departurecap.ParseFraction(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, reason := range map[string]string{
		"NaN": "Case 4.", "1.5": "Case 4.", "nan": "Case 4.", "Inf": "No number is that large.", "-0.05": "Negative.",
		"-0": "A sign is a mistake.", "+0.05": "The same.", "1.000001": "More than all.", "2": "More than all.",
		"": "Unset is not off.", ".": "Nothing.", ".5": "One way to write it.", "1.": "The same.", "5e-2": "The same.",
		"5%": "The same.", "0,05": "The same.", "0.0000001": "As zero it would turn the limit off.", "1/20": "Not decimal.", "0x1": "Not decimal.",
		"99999999999999999999": "More than fits.", "0.05.0": "Two points.", "\u0660": "A digit of another script.", "${FIVESPOT_CAP}": "A variable without a value.", "\t0.05": "One way to write it.",
	} {
		f, err := departurecap.ParseFraction(text)
		if err == nil {
			t.Errorf("%q is read as %d: %s", text, f, reason)
			continue
		}
		if !strings.Contains(err.Error(), strconv.Quote(text)) || !strings.Contains(err.Error(), "from 0 to 1") {
			t.Errorf("%q: the error names neither it nor the way out: %v", text, err)
		}
	}
}

func TestFractionIsAFlag(t *testing.T) {
	var f departurecap.Fraction
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	fs.TextVar(&f, "cap", fraction("0.05"), "of a Cluster's machines")
	if usage := fs.FlagUsages(); !strings.Contains(usage, "0.05") {
		t.Errorf("the default is not shown: %s", usage)
	}
	if err := fs.Parse([]string{"--cap=0.29"}); err != nil || f != fraction("0.29") {
		t.Errorf("%v, %v", f, err)
	}
	if err := fs.Parse([]string{"--cap=1.5"}); err == nil || !strings.Contains(err.Error(), "--cap") || !strings.Contains(err.Error(), `"1.5"`) {
		t.Errorf("the error does not name flag and value: %v", err)
	}
}

func TestAFractionIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := departurecap.Fraction(rapid.Int64Range(0, 1_000_000).Draw(t, "fraction"))
		if got, err := departurecap.ParseFraction(f.String()); err != nil || got != f {
			t.Fatalf("%d is written %q and read as %d, %v", int64(f), f, got, err)
		}
	})
}

// FuzzParseFraction compares with exact arithmetic.
func FuzzParseFraction(f *testing.F) {
	for _, s := range []string{"0.05", "1", "0", "NaN", "1.5", "-1", "1e-2", "0.0000001", "00000000000000000000.5", "0x.8p0", "1_0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := departurecap.ParseFraction(s)
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(s)
		if !ok || want.Cmp(big.NewRat(int64(got), 1_000_000)) != 0 {
			t.Fatalf("%q is read as %d millionths", s, int64(got))
		}
		if got < 0 || got > 1_000_000 {
			t.Fatalf("%q is read as %s", s, got)
		}
	})
}
