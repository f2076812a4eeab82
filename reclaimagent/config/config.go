// SPDX-License-Identifier: Apache-2.0

// Package config answers one question: what does a reclaim.toml ask for? It
// knows nothing about where the text comes from.
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

// maxText bounds what is parsed: the agent runs in a few MiB, and a hundred
// patterns of 256 characters in both lists stay far below it.
const maxText = 256 << 10

// file is reclaim.toml as written. A nil interval was not given.
type file struct {
	Commands  []string `toml:"match_commands"`
	Argv      []string `toml:"match_argv_substrings"`
	IntervalM *int64   `toml:"poll_interval_ms"`
}

// Parse reads a reclaim.toml strictly: every key is optional, and an unknown
// one is an error, because a misspelt list would leave the owner unprotected in
// silence. Empty text gives the inert Config. Every error wraps [ErrMalformed].
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
		// Compared before it is multiplied, which could overflow.
		if most := reclaim.MaxPollInterval.Milliseconds(); *f.IntervalM < 1 || *f.IntervalM > most {
			return reclaim.Config{}, fmt.Errorf("%w: poll_interval_ms is %d, want 1 to %d", ErrMalformed, *f.IntervalM, most)
		}
		c.PollInterval = time.Duration(*f.IntervalM) * time.Millisecond
	}
	if err := errors.Join(nonEmpty("match_commands", f.Commands), nonEmpty("match_argv_substrings", f.Argv)); err != nil {
		return reclaim.Config{}, err
	}
	return c, nil
}

// nonEmpty refuses empty patterns: an empty substring is part of every command
// line, and would eject the machine at once.
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

// explain says where the text is wrong, in one line.
func explain(err error) string {
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		return fmt.Sprintf("syntax error in line %d: %s", syntax.Position.Line, syntax.Message)
	}
	return err.Error()
}
