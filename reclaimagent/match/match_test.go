// SPDX-License-Identifier: Apache-2.0

package match_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
)

// loop is a simple matcher, the reference for all other tests.
func loop(commands, substrings []string, comm, argv []byte) (match.Hit, bool) {
	for _, c := range commands {
		if c != "" && string(comm) == c {
			return match.Hit{Pattern: c, Source: match.Comm}, true
		}
	}
	joined := bytes.ReplaceAll(bytes.TrimSuffix(argv, []byte{0}), []byte{0}, []byte{' '})
	for _, s := range substrings {
		if s != "" && bytes.Contains(joined, []byte(s)) {
			return match.Hit{Pattern: s, Source: match.Argv}, true
		}
	}
	return match.Hit{}, false
}

// argv joins arguments as the kernel does.
func argv(args ...string) []byte {
	var b []byte
	for _, a := range args {
		b = append(append(b, a...), 0)
	}
	return b
}

func TestMatch(t *testing.T) {
	cases := map[string]struct {
		reason               string
		commands, substrings []string
		comm                 string
		argv                 []byte
		want                 match.Hit
	}{
		"FirstInListOrderWins": {
			reason:     "Not the pattern that ends first in the text.",
			substrings: []string{"zebra", "apple"},
			argv:       argv("apple", "zebra"),
			want:       match.Hit{Pattern: "zebra", Source: match.Argv},
		},
		"ShorterInsideLonger": {
			reason:     "Both match at the same place; the list decides.",
			substrings: []string{"deal", "idea", "ide"},
			argv:       argv("ideal"),
			want:       match.Hit{Pattern: "deal", Source: match.Argv},
		},
		"SuffixOfAPrefix": {
			reason:     "A pattern that begins inside a failed one is found.",
			substrings: []string{"ababc"},
			argv:       argv("abababc"),
			want:       match.Hit{Pattern: "ababc", Source: match.Argv},
		},
		"BlankSpansArguments": {
			reason:     "Arguments are joined by blanks.",
			substrings: []string{"-jar app"},
			argv:       argv("java", "-jar", "app.jar"),
			want:       match.Hit{Pattern: "-jar app", Source: match.Argv},
		},
		"NoBlankAtTheEnd": {
			reason:     "The NUL that ends the last argument joins nothing.",
			substrings: []string{"java "},
			argv:       argv("java"),
		},
		"EmptyLastArgument": {
			reason:     "An empty argument is joined by a blank too.",
			substrings: []string{"java "},
			argv:       argv("java", ""),
			want:       match.Hit{Pattern: "java ", Source: match.Argv},
		},
		"AnyBytes": {
			reason:     "Patterns and arguments are bytes, not characters.",
			substrings: []string{"\xff\xfe"},
			argv:       argv("a\xff\xfeb"),
			want:       match.Hit{Pattern: "\xff\xfe", Source: match.Argv},
		},
		"NonASCII": {
			reason:     "UTF-8 matches itself.",
			substrings: []string{"größe"},
			argv:       argv("--größe=3"),
			want:       match.Hit{Pattern: "größe", Source: match.Argv},
		},
		"CommIsBytes": {
			reason:   "A name need not be text.",
			commands: []string{"\xffx"},
			comm:     "\xffx",
			want:     match.Hit{Pattern: "\xffx", Source: match.Comm},
		},
		"CaseCounts": {
			reason:   "Java is not java.",
			commands: []string{"java"}, substrings: []string{"java"},
			comm: "Java", argv: argv("Java"),
		},
		"EmptyPatternsMatchNothing": {
			reason:   "An empty substring is part of every command line.",
			commands: []string{""}, substrings: []string{""},
			argv: argv("java"),
		},
		"NULInPattern": {
			reason:     "A NUL in a pattern is no blank.",
			substrings: []string{"a\x00b"},
			argv:       argv("a", "b"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := match.New(tc.commands, tc.substrings).Match([]byte(tc.comm), tc.argv)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != (tc.want != match.Hit{}) {
				t.Errorf("%s\nMatch(...) = %v: -want, +got:\n%s", tc.reason, ok, diff)
			}
		})
	}
}

// TestPieces uses arguments that are longer than the buffer of the process table. An argument ends at the end of a
// piece.
func TestPieces(t *testing.T) {
	cases := map[string]struct {
		reason    string
		substring string
		pieces    []string
		want      bool
	}{
		"NULEndsAPiece":     {"Arguments are joined by blanks.", "-jar app", []string{"java\x00-jar\x00", "app.jar\x00"}, true},
		"NULBeginsAPiece":   {"Wherever they are cut.", "-jar app", []string{"java\x00-jar", "\x00app.jar\x00"}, true},
		"NULIsAPiece":       {"Also on both sides.", "-jar app", []string{"java\x00-jar", "\x00", "app.jar\x00"}, true},
		"NULJoinsNoWords":   {"The blank is there.", "-jarapp", []string{"java\x00-jar\x00", "app.jar\x00"}, false},
		"LastNUL":           {"The last argument ends without one.", "app ", []string{"java\x00", "app\x00"}, false},
		"LastNULIsAPiece":   {"Wherever it is cut.", "app ", []string{"java\x00app", "\x00"}, false},
		"EmptyLastArgument": {"An empty argument follows a blank.", "app ", []string{"java\x00app\x00", "\x00"}, true},
		"EmptyPiece":        {"Nothing changes nothing.", "app x", []string{"app\x00", "", "x"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := match.New(nil, []string{tc.substring}).Scan()
			for _, piece := range tc.pieces {
				s.Feed([]byte(piece))
			}
			if _, got := s.Hit(); got != tc.want {
				t.Errorf("%s\n%q in %q: %v, want %v", tc.reason, tc.substring, tc.pieces, got, tc.want)
			}
		})
	}
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/proc_match.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		ID, Comm                   string
		Argv, Commands, Substrings []string
		Match                      *struct{ Pattern, Source string }
	}
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			got, ok := match.New(v.Commands, v.Substrings).Match([]byte(v.Comm), argv(v.Argv...))
			if ok != (v.Match != nil) {
				t.Fatalf("Match(%q, %q) = %v, %v", v.Comm, v.Argv, got, ok)
			}
			if ok && (got.Pattern != v.Match.Pattern || string(got.Source) != v.Match.Source) {
				t.Errorf("Match(%q, %q) = %v, want %v", v.Comm, v.Argv, got, *v.Match)
			}
		})
	}
}

// TestAgreesWithLoop uses few letters, so that patterns overlap, and enough of them to reach the states beyond the
// table.
func TestAgreesWithLoop(t *testing.T) {
	letters := rapid.SampledFrom([]byte("ab\x00 \xff"))
	text := func(most int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(letters, 0, most), func(b []byte) string { return string(b) })
	}
	rapid.Check(t, func(t *rapid.T) {
		commands := rapid.SliceOfN(text(3), 0, 4).Draw(t, "commands")
		substrings := rapid.SliceOfN(text(8), 0, 12).Draw(t, "substrings")
		comm, args := []byte(text(3).Draw(t, "comm")), []byte(text(64).Draw(t, "argv"))
		// The reference joins arguments first, so a pattern with a NUL never matches.
		want, wantOK := loop(commands, substrings, comm, args)
		m := match.New(commands, substrings)
		got, ok := m.Match(comm, args)
		if got != want || ok != wantOK {
			t.Fatalf("Match = %v, %v; the loop says %v, %v", got, ok, want, wantOK)
		}
		cut := rapid.IntRange(0, len(args)).Draw(t, "cut")
		s := m.Scan()
		s.Feed(args[:cut])
		s.Feed(args[cut:])
		if pieces, _ := s.Hit(); want.Source != match.Comm && pieces != want {
			t.Fatalf("in two pieces %v, in one %v", pieces, want)
		}
	})
}

// TestDeepStates has more states than rows in the table.
func TestDeepStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := "abcdefghijklmnopqrstuvwxyz0123456789-_./ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		stem := strings.Repeat("ab", 100)
		var substrings []string
		for i := range 100 {
			substrings = append(substrings, stem[:100+i]+string(alphabet[i%len(alphabet)])+strings.Repeat("x", i))
		}
		substrings = rapid.Permutation(substrings).Draw(t, "substrings")
		pick := rapid.SliceOfN(rapid.SampledFrom(substrings), 0, 4).Draw(t, "pick")
		at := rapid.IntRange(0, 60).Draw(t, "at")
		var args []byte
		for _, p := range pick {
			args = append(append(args, stem...), p[at:]...)
		}
		want, _ := loop(nil, substrings, nil, args)
		if got, _ := match.New(nil, substrings).Match(nil, args); got != want {
			t.Fatalf("Match(%q) = %v, want %v", args, got, want)
		}
	})
}

func FuzzMatch(f *testing.F) {
	f.Add("java\nidea", "java\nidea", []byte("java"), argv("java", "-jar"))
	f.Add("", "ab\nba\na", []byte("x"), argv("bab", "a"))
	f.Add("abcdefghijklmnop", "\x00\n \n", []byte("abcdefghijklmno"), []byte{0, 0})
	f.Fuzz(func(t *testing.T, commands, substrings string, comm, args []byte) {
		cs, ss := strings.Split(commands, "\n"), strings.Split(substrings, "\n")
		want, wantOK := loop(cs, ss, comm, args)
		if got, ok := match.New(cs, ss).Match(comm, args); got != want || ok != wantOK {
			t.Errorf("Match(%q, %q) with %q, %q = %v, want %v", comm, args, cs, ss, got, want)
		}
	})
}

func TestTooLong(t *testing.T) {
	got := match.TooLong([]string{"java", "abcdefghijklmno", "abcdefghijklmnop"})
	if diff := cmp.Diff([]string{"abcdefghijklmnop"}, got); diff != "" {
		t.Errorf("The kernel keeps 15 bytes of a name.\n-want, +got:\n%s", diff)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	m := match.New([]string{"java", "idea"}, many(100, 256))
	comm, args := []byte("bash"), hostile(4096)
	if n := testing.AllocsPerRun(100, func() { m.Match(comm, args) }); n != 0 {
		t.Errorf("Match allocates %v times for a process that does not match, want 0", n)
	}
}

// many returns n different patterns of the given length that share a prefix.
func many(n, length int) []string {
	var patterns []string
	for i := range n {
		tail := string(rune('A'+i%26)) + string(rune('A'+i/26))
		patterns = append(patterns, strings.Repeat("a", length-2)+tail)
	}
	return patterns
}

// hostile returns arguments that nearly match many(...) everywhere.
func hostile(n int) []byte { return bytes.Repeat([]byte{'a'}, n) }

func plain(n int) []byte {
	return bytes.Repeat(argv("/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "-quiet", "-imultiarch", "main.c"), n/32+1)[:n]
}

func words(n int) []string {
	var patterns []string
	for i := range n {
		patterns = append(patterns, "tool-"+string(rune('a'+i%26))+string(rune('a'+i/26))+"-studio")
	}
	return patterns
}

func BenchmarkMatch(b *testing.B) {
	inputs := map[string]struct {
		patterns []string
		argv     []byte
	}{
		"100x15/256B":          {words(100), plain(256)},
		"100x15/128KiB":        {words(100), plain(128 << 10)},
		"100x256/hostile128Ki": {many(100, 256), hostile(128 << 10)},
	}
	for name, in := range inputs {
		m := match.New(nil, in.patterns)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m.Match(nil, in.argv)
			}
		})
		b.Run(name+"/loop", func(b *testing.B) {
			for b.Loop() {
				loop(nil, in.patterns, nil, in.argv)
			}
		})
	}
}
