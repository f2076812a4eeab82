// SPDX-License-Identifier: Apache-2.0

package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

func TestTextIsScreened(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, in, text, line string
	}{
		"PlainTextStays":      {"what everybody can see is not touched", "drain: shop/db-0 — späť 日本", "drain: shop/db-0 — späť 日本", "drain: shop/db-0 — späť 日本"},
		"LinesStayInText":     {"Cluster API lists pods on lines of their own", "blocked:\n* shop/db-0", "blocked:\n* shop/db-0", "blocked: * shop/db-0"},
		"LinesCannotBeForged": {"a reason must not look like an answer of ours", "x\nDo:  run evil", "x\nDo:  run evil", "x Do:  run evil"},
		"SeparatorsAreLines":  {"a renderer breaks lines at them", "a\u2028b\u2029c", "a\nb\nc", "a b c"},
		"CarriageReturnGoes":  {"it would write over what stands before it", "a\rb\r\nc", "ab\nc", "ab c"},
		"EscapesGo":           {"they steer the terminal", "\x1b[31mred\x07\u009b2J", "[31mred2J", "[31mred2J"},
		"TabIsASpace":         {"tables are aligned by tabs", "a\tb", "a b", "a b"},
		"DirectionMarksGo":    {"they turn the order of letters around", "\u202eabc\u2066d\u2069\u200f\u061ce", "abcde", "abcde"},
		"ZeroWidthGoes":       {"two texts that look the same are the same", "ja\u200bva\u200d\u2060\ufeff\u00ad", "java", "java"},
		"TagsAndSelectorsGo":  {"they carry what nobody sees", "a\U000E0041\U000E0100\uFE0F\u3164b", "ab", "ab"},
		"InvalidBytesGo":      {"the API takes UTF-8 only", "a\xff\xc3b\uFFFD", "ab", "ab"},
		"EndsAreTrimmed":      {"a line begins with what it says", " a \n", " a \n", "a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := clip.Text(tc.in); got != tc.text {
				t.Errorf("%s\nText(%q) = %q, want %q", tc.reason, tc.in, got, tc.text)
			}
			if got := clip.Line(tc.in); got != tc.line {
				t.Errorf("%s\nLine(%q) = %q, want %q", tc.reason, tc.in, got, tc.line)
			}
		})
	}
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, in string
		size       int
		want       string
	}{
		"WhatFitsStays":       {"the bound is inclusive", "12345678", 8, "12345678"},
		"WhatDoesNotIsMarked": {"readers see that something is missing", "123456789", 8, "1234 …"},
		"CharacterIsNotSplit": {"é has two bytes, and one fits", "123é56789", 8, "123 …"},
		"NoRoomForTheMark":    {"a bound below the mark's size is kept, too", "12345678", 3, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := clip.To(tc.in, tc.size); got != tc.want {
				t.Errorf("%s\nTo(%q, %d) = %q, want %q", tc.reason, tc.in, tc.size, got, tc.want)
			}
		})
	}
}

// A Node's longest text is a pattern of emoji, of 4 bytes each.
func TestNotesAndMessagesFitIntoTheAPI(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\U0001F600", 5000)
	if n := clip.Note(long + "\nmore"); len(n) > 1024 || len(n) < 1000 || strings.Contains(n, "\n") || !utf8.ValidString(n) {
		t.Errorf("note of %d bytes: %q", len(n), n)
	}
	if m := clip.Message("a\nb" + long); len(m) > 10240 || len(m) < 10200 || !strings.HasPrefix(m, "a\nb") || !utf8.ValidString(m) {
		t.Errorf("message of %d bytes", len(m))
	}
}

func FuzzClip(f *testing.F) {
	for _, s := range []string{"", "drain: shop/db-0", "a\xffb\u202e\x1b[31m\n日本語日本語", strings.Repeat("é", 20)} {
		f.Add(s, uint8(16))
	}
	f.Fuzz(func(t *testing.T, s string, bound uint8) {
		size := int(bound)
		if cut := clip.To(s, size); len(cut) > size && cut != s || utf8.ValidString(s) && !utf8.ValidString(cut) ||
			!strings.HasPrefix(strings.ToValidUTF8(s, ""), strings.TrimSuffix(cut, " …")) && cut != s {
			t.Errorf("To(%q, %d) = %q", s, size, cut)
		}
		for _, screen := range []func(string) string{clip.Text, clip.Line, clip.Note, clip.Message} {
			once := screen(s)
			if again := screen(once); again != once || !utf8.ValidString(once) {
				t.Errorf("%q becomes %q, then %q", s, once, again)
			}
		}
		if strings.ContainsAny(clip.Line(s), "\n\r\t\x1b\u202e\u200b\u2028") {
			t.Errorf("Line(%q) = %q", s, clip.Line(s))
		}
	})
}
