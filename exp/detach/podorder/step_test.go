// SPDX-License-Identifier: Apache-2.0

package podorder

import (
	"errors"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	said := func(ago int, a leaving.Answer) leaving.Progress {
		return leaving.Progress{Asked: at(-30), Answered: at(-ago), Answer: a}
	}
	open := func(p leaving.Progress) leaving.Progress { p.Open = true; return p }
	waits := leaving.Answer{Wait: nextLook, Says: "lab/a"}
	failed := leaving.Answer{Err: errors.New("no route to host")}
	for name, tc := range map[string]struct {
		reason string
		p      leaving.Progress
		began  time.Time
		want   leaving.Verdict
		due    bool
	}{
		"First":     {"It is looked at now.", leaving.Progress{}, now, leaving.Verdict{Holds: true, Again: at(60)}, true},
		"Open":      {"One call at a time.", open(leaving.Progress{Asked: at(-5)}), at(-5), leaving.Verdict{Holds: true, Again: at(55)}, false},
		"Done":      {"Nothing is left.", said(1, leaving.Answer{}), at(-30), leaving.Verdict{}, false},
		"DoneTold":  {"What was left alone is told.", said(1, leaving.Answer{Says: "lab/b"}), at(-30), leaving.Verdict{Note: "lab/b"}, false},
		"Waits":     {"It is not time yet.", said(1, waits), at(-30), leaving.Verdict{Holds: true, Again: at(2), Note: "lab/a"}, false},
		"Again":     {"It is time.", said(3, waits), at(-30), leaving.Verdict{Holds: true, Again: at(30), Note: "lab/a"}, true},
		"AgainOpen": {"The call has begun.", open(said(3, waits)), at(-30), leaving.Verdict{Holds: true, Again: at(30), Note: "lab/a"}, false},
		"Failed":    {"It is tried again, in a while.", said(4, failed), at(-30), leaving.Verdict{Holds: true, Again: at(1), Note: "no route to host"}, false},
		"TryAgain":  {"Now.", said(5, failed), at(-30), leaving.Verdict{Holds: true, Again: at(30), Note: "no route to host"}, true},
		"Over":      {"It lets go, and says so.", said(3, waits), at(-60), leaving.Verdict{Missed: true, Note: "pods were not stopped within 1m0s: lab/a"}, false},
		"OverOpen":  {"A call that hangs holds nobody.", open(leaving.Progress{Asked: at(-30)}), at(-60), leaving.Verdict{Missed: true, Note: "pods were not stopped within 1m0s: pods have not been looked at yet"}, false},
		"LastTurn":  {"The deadline is nearer than the next look.", said(1, waits), at(-59), leaving.Verdict{Holds: true, Again: at(1), Note: "lab/a"}, false},
		"Late":      {"A manager that comes late asks once.", leaving.Progress{}, at(-600), leaving.Verdict{Holds: true, Again: at(10)}, true},
		"Ahead":     {"A clock that is behind gives it no more than it has.", said(1, waits), at(600), leaving.Verdict{Holds: true, Again: at(2), Note: "lab/a"}, false},
	} {
		if v, due := judge(tc.p, time.Minute, tc.began, now); v != tc.want || due != tc.due {
			t.Errorf("%s: got %+v, due %t, want %+v, due %t: %s", name, v, due, tc.want, tc.due, tc.reason)
		}
	}
}
