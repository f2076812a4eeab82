// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// vectors are the cases that every implementation of this grammar must pass.
type vectors struct {
	Eval []struct {
		ID      string   `json:"id"`
		Enabled *bool    `json:"enabled"`
		Days    []string `json:"days"`
		Hours   []string `json:"hours"`
		TZ      string   `json:"tz"`
		At      string   `json:"at"`
		Active  bool     `json:"active"`
		Next    *string  `json:"next"`
	} `json:"schedule_eval"`
	Errors []struct {
		ID    string   `json:"id"`
		Days  []string `json:"days"`
		Hours []string `json:"hours"`
		TZ    string   `json:"tz"`
		Error string   `json:"error"`
	} `json:"schedule_error"`
	Days      []setVector `json:"parse_days"`
	Hours     []setVector `json:"parse_hours"`
	Durations []struct {
		Input   string `json:"input"`
		Seconds int    `json:"seconds"`
		Error   string `json:"error"`
	} `json:"parse_duration"`
}

type setVector struct {
	Input string `json:"input"`
	OK    []int  `json:"ok"`
	Error string `json:"error"`
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectorsEvaluate(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Eval {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			var s Schedule // a disabled schedule is the zero value, whatever its text
			if v.Enabled == nil || *v.Enabled {
				var err error
				if s, err = Parse(Spec{DaysOfWeek: v.Days, HoursOfDay: v.Hours, Timezone: v.TZ}); err != nil {
					t.Fatal(err)
				}
			}
			at, err := time.Parse(time.RFC3339, v.At)
			if err != nil {
				t.Fatal(err)
			}
			active, change := s.At(at)
			var next *string
			if !change.IsZero() {
				text := change.Format(time.RFC3339)
				next = &text
			}
			if active != v.Active {
				t.Errorf("At(%s): active %t, want %t", v.At, active, v.Active)
			}
			if diff := cmp.Diff(v.Next, next); diff != "" {
				t.Errorf("At(%s): next: -want, +got:\n%s", v.At, diff)
			}
		})
	}
}

func TestVectorsRefuse(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Errors {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(Spec{DaysOfWeek: v.Days, HoursOfDay: v.Hours, Timezone: v.TZ})
			want := v.Error
			if want == "schema pattern" { // The CRD rejects it, but a file may not have passed a CRD.
				want = "Invalid timezone: " + v.TZ
			}
			if got := reasonOf(t, err); got != want {
				t.Errorf("Parse(...): %q, want %q", got, want)
			}
		})
	}
}

func TestVectorsDays(t *testing.T) {
	t.Parallel()
	testSets(t, dayGrammar, readVectors(t).Days)
}

func TestVectorsHours(t *testing.T) {
	t.Parallel()
	testSets(t, hourGrammar, readVectors(t).Hours)
}

func testSets(t *testing.T, g grammar, vs []setVector) {
	t.Helper()
	for _, v := range vs {
		set, err := g.parse([]string{v.Input})
		if v.Error != "" {
			if diff := cmp.Diff(g.reason+v.Error, reasonOf(t, err)); diff != "" {
				t.Errorf("parse(%q): -want, +got:\n%s", v.Input, diff)
			}
			continue
		}
		if err != nil {
			t.Errorf("parse(%q): %v", v.Input, err)
		}
		if diff := cmp.Diff(v.OK, members(set)); diff != "" {
			t.Errorf("parse(%q): -want, +got:\n%s", v.Input, diff)
		}
	}
}

func TestVectorsDurations(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t).Durations {
		d, err := ParseDuration(v.Input)
		if v.Error != "" {
			if diff := cmp.Diff(v.Error, reasonOf(t, err)); diff != "" {
				t.Errorf("ParseDuration(%q): -want, +got:\n%s", v.Input, diff)
			}
			continue
		}
		if want := time.Duration(v.Seconds) * time.Second; err != nil || d != want {
			t.Errorf("ParseDuration(%q): %v, %v, want %v", v.Input, d, err, want)
		}
	}
}

// reasonOf also checks the type of the error and that it has a Help.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var bad *FieldError
	if !errors.As(err, &bad) {
		t.Fatalf("error is %#v, want a *FieldError", err)
	}
	if bad.Help == "" || !strings.HasSuffix(err.Error(), bad.Help) {
		t.Errorf("error %q does not end in a way out", err)
	}
	return bad.Reason
}

// members returns the elements of a bit set.
func members(set uint32) []int {
	var list []int
	for i := range 32 {
		if set>>i&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}
