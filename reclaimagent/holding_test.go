// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

// withHold returns the Config java with a hold.
func withHold(h reclaim.Hold) reclaim.Config {
	c := reclaim.ConfigFor([]string{"java"})
	c.Hold = h
	return c
}

// TestHoldActions checks the order of the actions on a match: freeze, request, kill.
func TestHoldActions(t *testing.T) {
	cases := map[string]struct {
		reason string
		w      *workstation
		story  func(w *workstation, configs latestConfig)
		want   []string
		// watched is how often the loop waited for a request of a person.
		watched int
	}{
		"NotAsked": {
			reason: "Without a hold the holder is not called, and the Node is not read.",
			story:  func(w *workstation, c latestConfig) { c.Put(java); w.runs("java"); time.Sleep(time.Second) },
			want:   []string{"delivered"},
		},
		"None": {
			reason: "None is no hold.",
			story: func(w *workstation, c latestConfig) {
				c.Put(withHold(reclaim.HoldNone))
				w.runs("java")
				time.Sleep(time.Second)
			},
			want: []string{"delivered"},
		},
		"Match": {
			reason: "The freeze is before the request, and the kill after it.",
			story: func(w *workstation, c latestConfig) {
				c.Put(withHold(reclaim.HoldKill))
				time.Sleep(time.Minute)
				w.runs("java")
				time.Sleep(time.Second)
			},
			want:    []string{"matched 00:01:00", "delivered", "requested"},
			watched: 1,
		},
		"ServerAway": {
			reason: "The hold does not wait for the API server. Nothing is killed before the request is on the Node.",
			w:      &workstation{reporting: []error{errors.New("refused")}},
			story: func(w *workstation, c latestConfig) {
				c.Put(withHold(reclaim.HoldKill))
				w.runs("java")
				time.Sleep(time.Second)
			},
			want:    []string{"matched 00:00:00"},
			watched: 1,
		},
		"Refused": {
			reason: "A refusal ends the hold.",
			w:      &workstation{reporting: []error{fmt.Errorf("%w: x", report.ErrHostIdentity)}},
			story: func(w *workstation, c latestConfig) {
				c.Put(withHold(reclaim.HoldKill))
				w.runs("java")
				time.Sleep(time.Second)
			},
			want:    []string{"matched 00:00:00", "refused"},
			watched: 1,
		},
		"Person": {
			reason: "After a request of a person the agent waits until it is cleared.",
			story: func(w *workstation, c latestConfig) {
				c.Put(withHold(reclaim.HoldFreeze))
				time.Sleep(time.Minute)
				close(w.byPerson)
				synctest.Wait()
				w.runs("java")
				time.Sleep(time.Hour)
			},
			watched: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := tc.w
				if w == nil {
					w = &workstation{}
				}
				w.cleared, w.byPerson = make(chan struct{}), make(chan struct{})
				l := w.loop()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.run(ctx) }()
				synctest.Wait()
				tc.story(w, l.configs)
				synctest.Wait()
				cancel()
				<-ended
				if diff := cmp.Diff(tc.want, w.calls); diff != "" || w.watched != tc.watched {
					t.Errorf("%s\nwaited %d times for a person, want %d; calls: -want, +got:\n%s", tc.reason, w.watched, tc.watched, diff)
				}
			})
		})
	}
}
