// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRemoteCheckVerdict(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	latest := func(seconds int) string { return " (until " + at(seconds).Format(time.RFC3339) + " at the latest)" }
	said := func(ago int, a Response) Progress {
		return Progress{FirstCalled: at(-30), LastAnswered: at(-ago), Answer: a}
	}
	open := func(p Progress) Progress { p.Open = true; return p }
	waits := Response{Wait: 3 * time.Second, Message: "lab/a"}
	failed := Response{Err: errors.New("no route to host")}
	l := RemoteCheck{
		MaxWait: time.Minute, Call: 10 * time.Second,
		TimedOut: "pods were not stopped within 1m0s",
	}
	for name, tc := range map[string]struct {
		reason string
		p      Progress
		began  time.Time
		want   Verdict
		due    bool
	}{
		"First":        {"It is looked at now.", Progress{}, now, Verdict{Holds: true, Again: at(60)}, true},
		"Open":         {"One call at a time.", open(Progress{FirstCalled: at(-5)}), at(-5), Verdict{Holds: true, Again: at(55)}, false},
		"Done":         {"Nothing is left.", said(1, Response{}), at(-30), Verdict{}, false},
		"DoneTold":     {"What was left alone is told.", said(1, Response{Message: "lab/b"}), at(-30), Verdict{Note: "lab/b"}, false},
		"DoneLate":     {"So is who was not waited for.", said(1, Response{Missed: true, Message: "lab/c"}), at(-30), Verdict{Missed: true, Note: "lab/c"}, false},
		"Waits":        {"It is not time yet.", said(1, waits), at(-30), Verdict{Holds: true, Again: at(2), Note: "lab/a" + latest(30)}, false},
		"Again":        {"It is time.", said(3, waits), at(-30), Verdict{Holds: true, Again: at(30), Note: "lab/a" + latest(30)}, true},
		"AgainOpen":    {"The call has begun.", open(said(3, waits)), at(-30), Verdict{Holds: true, Again: at(30), Note: "lab/a" + latest(30)}, false},
		"Failed":       {"It is tried again, in a while.", said(4, failed), at(-30), Verdict{Holds: true, Again: at(1), Note: "no route to host" + latest(30)}, false},
		"TryAgain":     {"Now.", said(5, failed), at(-30), Verdict{Holds: true, Again: at(30), Note: "no route to host" + latest(30)}, true},
		"Over":         {"It lets go, and says so.", said(3, waits), at(-60), Verdict{Missed: true, Note: "pods were not stopped within 1m0s: lab/a"}, false},
		"OverOpen":     {"A call that hangs holds no Machine.", open(Progress{FirstCalled: at(-30)}), at(-60), Verdict{Missed: true, Note: "pods were not stopped within 1m0s: no read of the pods has returned yet"}, false},
		"LastTurn":     {"The deadline is nearer than the next look.", said(1, waits), at(-59), Verdict{Holds: true, Again: at(1), Note: "lab/a" + latest(1)}, false},
		"Late":         {"A manager that comes late asks once.", Progress{}, at(-600), Verdict{Holds: true, Again: at(10)}, true},
		"Ahead":        {"A clock that is behind gives it no more than it has.", said(1, waits), at(600), Verdict{Holds: true, Again: at(2), Note: "lab/a" + latest(30)}, false},
		"HeldByOthers": {"It may change its mind.", said(1, Response{Message: "lab/b"}), at(-30), Verdict{Note: "lab/b", Again: at(4)}, false},
		"HeldLong":     {"It checks once more, and the Machine does not wait for that.", said(5, Response{Missed: true, Message: "lab/b"}), at(-30), Verdict{Missed: true, Note: "lab/b"}, true},
		"HeldOpen":     {"One call at a time.", open(said(5, Response{})), at(-30), Verdict{}, false},
		"HeldOver":     {"It holds the Machine no longer.", said(5, Response{}), at(-60), Verdict{}, false},
	} {
		l.RecheckInterval = 0
		if strings.HasPrefix(name, "Held") {
			l.RecheckInterval = 5 * time.Second
		}
		if v, due := l.verdict(tc.p, tc.began, now); v != tc.want || due != tc.due {
			t.Errorf("%s: got %+v, due %t, want %+v, due %t: %s", name, v, due, tc.want, tc.due, tc.reason)
		}
	}
}
