// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
)

// askMatching measures the cost of a hundred patterns against a simple loop, and checks that both always agree.
func (a *agentBench) askMatching(ctx context.Context) error {
	patterns := make([]string, 100)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("tool-%c%c-studio", 'a'+i%26, 'a'+i/26)
	}
	const usual = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1\x00-quiet\x00-imultiarch\x00x86_64-linux-gnu\x00main.c\x00"
	for _, size := range []int{256, 128 << 10} {
		ours, loop := a.race(patterns, bytes.Repeat([]byte(usual), size/len(usual)+1)[:size])
		f := spread(fmt.Sprintf("G10 100 patterns, %d bytes", size), ours).against("Contains loop", spread("", loop))
		a.add(f.goal("≤ 0.1 × Contains loop", f.within(.1)))
	}
	// All patterns nearly match everywhere in the arguments.
	for i := range patterns {
		patterns[i] = fmt.Sprintf("%s%c%c", strings.Repeat("a", 254), 'A'+i%26, 'A'+i/26)
	}
	ours, loop := a.race(patterns, bytes.Repeat([]byte{'a'}, 128<<10))
	f := spread("G10 100 patterns, 131072 hostile bytes", ours).against("Contains loop", spread("", loop))
	a.add(f.goal("≤ 1", f.P50 <= 1))
	return a.askVerdicts(ctx)
}

// race runs both in turn. A sample is the mean of enough runs to be measurable.
func (a *agentBench) race(patterns []string, argv []byte) (ours, loop []time.Duration) {
	const samples = 20
	m := match.New(nil, patterns)
	times := max(1, (256<<10)/len(argv))
	for range samples {
		ours = append(ours, timed(times, func() { m.Match(nil, argv) }))
		loop = append(loop, timed(times, func() { contains(patterns, argv) }))
	}
	return ours, loop
}

func timed(times int, f func()) time.Duration {
	begun := monotonic()
	for range times {
		f()
	}
	return (monotonic() - begun) / time.Duration(times)
}

// contains is the reference matcher: it returns the first pattern that occurs in the arguments, joined by blanks.
func contains(patterns []string, argv []byte) (string, bool) {
	joined := bytes.ReplaceAll(bytes.TrimSuffix(argv, []byte{0}), []byte{0}, []byte{' '})
	for _, p := range patterns {
		if p != "" && bytes.Contains(joined, []byte(p)) {
			return p, true
		}
	}
	return "", false
}

// askVerdicts compares the results for patterns and arguments of few letters, which have much in common.
func (a *agentBench) askVerdicts(ctx context.Context) error {
	const cases = 20_000
	word := func(longest int) []byte {
		w := make([]byte, a.random.IntN(longest+1))
		for i := range w {
			w[i] = "ab \x00"[a.random.IntN(4)]
		}
		return w
	}
	differ := 0
	for range cases {
		if err := ctx.Err(); err != nil {
			return err
		}
		patterns := make([]string, a.random.IntN(8))
		for i := range patterns {
			patterns[i] = string(bytes.ReplaceAll(word(5), []byte{0}, []byte{'c'}))
		}
		argv := word(30)
		want, ok := contains(patterns, argv)
		if hit, matched := match.New(nil, patterns).Match(nil, argv); matched != ok || hit.Pattern != want {
			differ++
		}
	}
	a.add(one("G10 verdicts that differ from the loop's", "verdicts", cases, float64(differ)).goal("0", differ == 0))
	return nil
}
