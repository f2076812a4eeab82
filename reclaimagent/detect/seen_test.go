// SPDX-License-Identifier: Apache-2.0

package detect_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
)

// TestManyMatches: more processes match than seen can hold. Processes in seen are emitted once. The others are emitted
// with every scan, and memory does not grow.
func TestManyMatches(t *testing.T) {
	const remembered, more, first = 4096, 2, 100
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		for pid := first; pid < first+remembered+more; pid++ {
			m.start(pid, "java", "java", ownerCgroup)
		}
		r := start(t, m, detect.Poll, nil)
		walks := int(r.counts.Polls.Load())
		time.Sleep(3*interval + interval/2)
		walks = int(r.counts.Polls.Load()) - walks
		got := r.got()
		if walks < 2 || len(got) != remembered+more+walks*more {
			t.Errorf("%d processes emitted in the first and %d more walks, want %d and then %d with each", len(got), walks, remembered+more, more)
		}
		for _, f := range got[min(len(got), remembered+more):] {
			if f.PID < first+remembered {
				t.Fatalf("%d is in seen and is emitted again", f.PID)
			}
		}
	})
}

// TestArgumentsInPieces has arguments that end at the end of the buffer: 16 KiB.
func TestArgumentsInPieces(t *testing.T) {
	for name, length := range map[string]int{"NULEndsAPiece": 16<<10 - 1, "NULBeginsAPiece": 16 << 10} {
		for _, mode := range []detect.Mode{detect.Netlink, detect.Poll} {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, e := newMachine(), newEvents()
					m.start(70, "x", strings.Repeat("x", length-len(" id"))+" id"+" ea", ownerCgroup) // "idea" is not there
					m.start(71, "x", strings.Repeat("x", length-len(" java"))+" java -jar", ownerCgroup)
					r := startFor(t, m, mode, dialing(e), match.New(nil, []string{"idea", "java -jar"}))
					got := r.got()
					if len(got) != 1 || got[0].PID != 71 || got[0].Pattern != "java -jar" {
						t.Errorf("found %+v, want the pattern that spans two arguments, and only that", got)
					}
				})
			})
		}
	}
}
