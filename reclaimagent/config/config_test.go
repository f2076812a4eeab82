// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   reclaim.Config
		err    string
	}{
		"Whole": {
			reason: "The example of the documentation.",
			text:   "match_commands = [\"java\", \"idea\"]\nmatch_argv_substrings = [\"java\"]\npoll_interval_ms = 100\n",
			want:   reclaim.Config{MatchCommands: []string{"java", "idea"}, MatchArgvSubstrings: []string{"java"}, PollInterval: 100 * time.Millisecond},
		},
		"UnknownFieldIsNamed": {
			reason: "The error names the misspelt key.",
			text:   "match_comands = [\"java\"]\n",
			err:    `unknown field "match_comands"`,
		},
		"UnknownTable":        {"Tables are fields too.", "[agent]\nx = 1\n", reclaim.Config{}, `unknown field "agent", "agent.x"`},
		"SyntaxErrorHasALine": {"The line helps a person to find the mistake.", "match_commands = []\nmatch_argv_substrings = [\n", reclaim.Config{}, "syntax error in line 2"},
		"IntervalZero":        {"An interval of zero would poll without a pause.", "poll_interval_ms = 0", reclaim.Config{}, "poll_interval_ms is 0, want 1 to 60000"},
		"IntervalNegative":    {"A negative interval is invalid.", "poll_interval_ms = -1", reclaim.Config{}, "poll_interval_ms is -1"},
		"IntervalHuge":        {"A mistake in the unit must not disable the agent.", "poll_interval_ms = 9223372036854775807", reclaim.Config{}, "want 1 to 60000"},
		"IntervalText":        {"A string is no number.", "poll_interval_ms = \"250\"", reclaim.Config{}, "poll_interval_ms"},
		"ListOfNumbers":       {"Patterns are strings.", "match_commands = [1]", reclaim.Config{}, "match_commands"},
		"NotAList":            {"One pattern is still a list.", "match_commands = \"java\"", reclaim.Config{}, "match_commands"},
		"EmptyPattern":        {"It would match every process.", "match_argv_substrings = [\"java\", \"\"]", reclaim.Config{}, "match_argv_substrings[1] is empty"},
		"TwiceTheSameKey":     {"A repeated key is ambiguous.", "match_commands = []\nmatch_commands = []", reclaim.Config{}, "line 2"},
		"TooLong":             {"Memory is bounded.", strings.Repeat("#", 300<<10), reclaim.Config{}, "want at most"},
		"NotText":             {"TOML is UTF-8.", "match_commands = [\"\xff\"]", reclaim.Config{}, "syntax"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse([]byte(tc.text))
			if tc.err != "" {
				if !errors.Is(err, config.ErrMalformed) || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s\nParse(...): error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%s\nParse(...), error %v: -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/reclaim_toml.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		TOML string
		OK   *struct {
			Commands []string `json:"match_commands"`
			Argv     []string `json:"match_argv_substrings"`
			Interval int64    `json:"poll_interval_ms"`
		}
		Inert bool
		Error string
	}
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		got, err := config.Parse([]byte(v.TOML))
		if v.OK == nil {
			if err == nil || !strings.Contains(err.Error(), v.Error) {
				t.Errorf("Parse(%q): error %v, want one with %q", v.TOML, err, v.Error)
			}
			continue
		}
		want := reclaim.Config{MatchCommands: v.OK.Commands, MatchArgvSubstrings: v.OK.Argv, PollInterval: time.Duration(v.OK.Interval) * time.Millisecond}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil || got.Inert() != v.Inert {
			t.Errorf("Parse(%q), error %v, inert %v: -want, +got:\n%s", v.TOML, err, got.Inert(), diff)
		}
	}
}

func TestDeepNestingIsCheap(t *testing.T) {
	if _, err := config.Parse([]byte("a = " + strings.Repeat("[", 200<<10))); !errors.Is(err, config.ErrMalformed) {
		t.Errorf("Nested arrays: error %v, want ErrMalformed", err)
	}
}

func TestRenderedConfigParses(t *testing.T) {
	pattern := rapid.StringN(1, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		want := reclaim.Config{
			MatchCommands:       rapid.SliceOf(pattern).Draw(t, "commands"),
			MatchArgvSubstrings: rapid.SliceOf(pattern).Draw(t, "argv"),
			PollInterval:        time.Duration(rapid.Int64Range(1, 60_000).Draw(t, "ms")) * time.Millisecond,
		}
		got, err := config.Parse([]byte(want.Text()))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("Parse(%q), error %v: -want, +got:\n%s", want.Text(), err, diff)
		}
		if got.Hash() != want.Hash() {
			t.Fatalf("%q: the writer and the reader have different hashes", want.Text())
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("match_commands = [\"java\"]\nmatch_argv_substrings = ['idea']\npoll_interval_ms = 250\n"))
	f.Add([]byte("match_comands = []"))
	f.Add([]byte("match_commands = [\n"))
	f.Add([]byte("\"match_commands\" = [\"\\u0000\\\"\", \"\"\"x\ny\"\"\"]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := config.Parse(text)
		if err != nil {
			if !errors.Is(err, config.ErrMalformed) {
				t.Fatalf("error %v is not ErrMalformed", err)
			}
			return
		}
		again, err := config.Parse([]byte(c.Text()))
		if diff := cmp.Diff(c, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("rendered and parsed again, error %v: -want, +got:\n%s", err, diff)
		}
	})
}
