// SPDX-License-Identifier: Apache-2.0

// Package config parses reclaim.toml, the agent's configuration.
package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// ErrMalformed is wrapped by every error of [Parse].
var ErrMalformed = errors.New("malformed reclaim.toml")

// maxText bounds the size of the text in bytes, because the agent runs in a few MiB. Two lists of a hundred patterns
// with 256 characters are far below it.
const maxText = 256 << 10

// file is the content of reclaim.toml. IntervalM is nil if the key is absent.
type file struct {
	Commands  []string `toml:"match_commands"`
	Argv      []string `toml:"match_argv_substrings"`
	IntervalM *int64   `toml:"poll_interval_ms"`
	Hold      string   `toml:"reclaim_hold"`
}

// Parse parses a reclaim.toml. Every key is optional. An unknown key is an error, because a misspelt list would
// silently disable the protection of the owner. Empty text returns a Config without patterns. Every error wraps
// [ErrMalformed].
func Parse(text []byte) (reclaim.Config, error) {
	if len(text) > maxText {
		return reclaim.Config{}, fmt.Errorf("%w: %d bytes, want at most %d", ErrMalformed, len(text), maxText)
	}
	var f file
	meta, err := toml.Decode(string(text), &f)
	if err != nil {
		return reclaim.Config{}, fmt.Errorf("%w: %s", ErrMalformed, explain(err))
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return reclaim.Config{}, fmt.Errorf("%w: unknown field %s", ErrMalformed, names(unknown))
	}
	return f.config()
}

func (f file) config() (reclaim.Config, error) {
	c := reclaim.Config{MatchCommands: f.Commands, MatchArgvSubstrings: f.Argv, PollInterval: reclaim.DefaultPollInterval}
	if f.IntervalM != nil {
		// Compare before the multiplication, which could overflow.
		if most := reclaim.MaxPollInterval.Milliseconds(); *f.IntervalM < 1 || *f.IntervalM > most {
			return reclaim.Config{}, fmt.Errorf("%w: poll_interval_ms is %d, want 1 to %d", ErrMalformed, *f.IntervalM, most)
		}
		c.PollInterval = time.Duration(*f.IntervalM) * time.Millisecond
	}
	switch hold := reclaim.Hold(f.Hold); {
	case hold.Enabled():
		c.Hold = hold
	case hold != "" && hold != reclaim.HoldNone:
		return reclaim.Config{}, fmt.Errorf("%w: reclaim_hold is %q, want %s, %s, %s or %s",
			ErrMalformed, f.Hold, reclaim.HoldNone, reclaim.HoldFreeze, reclaim.HoldFreezeOnly, reclaim.HoldKill)
	}
	if err := errors.Join(nonEmpty("match_commands", f.Commands), nonEmpty("match_argv_substrings", f.Argv)); err != nil {
		return reclaim.Config{}, err
	}
	return c, nil
}

// nonEmpty rejects empty patterns: an empty substring matches every process, and would eject the machine at once.
func nonEmpty(key string, patterns []string) error {
	for i, p := range patterns {
		if p == "" {
			return fmt.Errorf("%w: %s[%d] is empty", ErrMalformed, key, i)
		}
	}
	return nil
}

func names(keys []toml.Key) string {
	quoted := make([]string, len(keys))
	for i, k := range keys {
		quoted[i] = fmt.Sprintf("%q", k.String())
	}
	return strings.Join(quoted, ", ")
}

// explain returns the line and the message of a syntax error, in one line.
func explain(err error) string {
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Sprintf("syntax error in line %d: %s", syntax.Position.Line, syntax.Message)
	}
	return err.Error()
}
