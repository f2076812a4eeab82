// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder/order"
)

var noon = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

// pod returns a pod with the given priority, none if empty. Its UID is its name.
func pod(name, priority string) order.Pod {
	p := order.Pod{Namespace: "lab", Name: name, UID: name}
	if priority != "" {
		p.Priority = &priority
	}
	return p
}

// going returns a terminating pod whose grace period ends at the given time.
func going(p order.Pod, until time.Time) order.Pod {
	p.Until = until
	return p
}

func names(pods []order.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	written := new(`{"a":"10","b":"5","c":"-1"}`)
	all := []order.Pod{pod("c", "-1"), pod("a", "10"), pod("b", "5"), pod("plain", "")}
	again := pod("a", "10")
	again.UID = "a2"
	var many []order.Pod
	for i := range 7 {
		many = append(many, pod(fmt.Sprint("p", i), "1"))
	}
	for name, tc := range map[string]struct {
		reason       string
		pods         []order.Pod
		record       *string
		del, wait    string
		newRecord    string
		notes        []string
		wantFinished bool
	}{
		"Nothing":   {"Nobody wants an order: the Node is not even written.", []order.Pod{pod("plain", "")}, nil, "", "", "", nil, true},
		"First":     {"The highest is first, and all are written down before.", all, nil, "a", "", *written, []string{"stopping pods of priority 10: lab/a"}, false},
		"Waits":     {"The next waits until it is gone.", append([]order.Pod{going(pod("a", "10"), noon)}, all[2:]...), written, "", "a", "", []string{"stopping pods of priority 10: lab/a"}, false},
		"Next":      {"It is gone.", []order.Pod{all[0], all[2]}, written, "b", "", "", []string{"stopping pods of priority 5: lab/b"}, false},
		"Last":      {"Negative numbers are numbers.", []order.Pod{all[0]}, written, "c", "", "", []string{"stopping pods of priority -1: lab/c"}, false},
		"End":       {"None of them is left.", []order.Pod{pod("plain", "")}, written, "", "", "", nil, true},
		"CameBack":  {"It has another UID: to delete it again would never end.", []order.Pod{again}, written, "", "", "", []string{"lab/a was created after the ordered stop began, and is not stopped"}, true},
		"Overtaken": {"One of a higher priority that came back stops nobody.", []order.Pod{again, all[2]}, written, "b", "", "", []string{"stopping pods of priority 5: lab/b", "lab/a was created after the ordered stop began, and is not stopped"}, false},
		"Edited":    {"What was written down counts: an edit on the way has no two groups leave.", []order.Pod{pod("b", "99"), pod("c", "100")}, written, "b", "", "", []string{"stopping pods of priority 5: lab/b"}, false},
		"Bad": {
			"One bad number stops nobody else.",
			[]order.Pod{pod("a", "10"), pod("b", "high")},
			nil, "a", "", `{"a":"10","b":"high"}`,
			[]string{"stopping pods of priority 10: lab/a", `lab/b is left alone: its priority "high" is not a whole number`},
			false,
		},
		"OnlyBad": {"It is told of, and waited for by nobody.", []order.Pod{pod("b", "1.5")}, nil, "", "", `{"b":"1.5"}`, []string{`lab/b is left alone: its priority "1.5" is not a whole number`}, true},
		"Spaces":  {"People write spaces.", []order.Pod{pod("a", " 7 ")}, nil, "a", "", `{"a":"7"}`, []string{"stopping pods of priority 7: lab/a"}, false},
		"Huge":    {"What no number holds is no number.", []order.Pod{pod("a", "99999999999999999999")}, nil, "", "", `{"a":"99999999999999999999"}`, []string{`lab/a is left alone: its priority "99999999999999999999" is not a whole number`}, true},
		"Together": {
			"All of a group leave at the same time.",
			[]order.Pod{pod("b", "3"), pod("a", "3"), going(pod("c", "3"), noon.Add(time.Minute))},
			new(`{"a":"3","b":"3","c":"3"}`), "a b", "c", "",
			[]string{"stopping pods of priority 3: lab/a, lab/b, lab/c"},
			false,
		},
		"Stuck": {
			"One that does not go is named.",
			[]order.Pod{going(pod("a", "10"), noon.Add(-time.Minute)), pod("b", "5")},
			written, "", "a", "",
			[]string{"stopping pods of priority 10: lab/a (still there after its grace period)"},
			false,
		},
		"Many": {
			"A text has an end.", many, new(`{"p0":"1","p1":"1","p2":"1","p3":"1","p4":"1","p5":"1","p6":"1"}`),
			"p0 p1 p2 p3 p4 p5 p6", "", "",
			[]string{"stopping pods of priority 1: lab/p0, lab/p1, lab/p2, lab/p3, lab/p4, and 2 more"},
			false,
		},
		"Unreadable": {
			"Nobody knows which pods they are, and nobody guesses.", all, new("soon"), "", "", "",
			[]string{"pods are not stopped in order: the record of them on the Node cannot be parsed: invalid character 's' looking for beginning of value"},
			true,
		},
		"Null": {"It says nothing.", all, new("null"), "", "", "", []string{"pods are not stopped in order: the record of them on the Node cannot be parsed: it is empty"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := order.Decide(order.Facts{Pods: tc.pods, Record: tc.record, Now: noon})
			if names(d.Delete) != tc.del || names(d.Wait) != tc.wait || d.Done() != tc.wantFinished {
				t.Errorf("%s\ndelete %q, wait %q, done %t", tc.reason, names(d.Delete), names(d.Wait), d.Done())
			}
			if diff := cmp.Diff(tc.notes, d.Notes); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			var record string
			if d.Record != nil {
				record = *d.Record
			}
			if record != tc.newRecord {
				t.Errorf("%s\nwritten down %s, want %s", tc.reason, record, tc.newRecord)
			}
		})
	}
}

// TestALongPriorityIsClipped: a long priority is cut in the record, which must fit into the annotations of a Node, and
// in notes. A number is still the same number, and other text does not become one.
func TestALongPriorityIsClipped(t *testing.T) {
	t.Parallel()
	const long, room = 4 << 10, 256 << 10 // room is the limit of all annotations of an object
	for name, tc := range map[string]struct {
		priority string
		isNumber bool
	}{
		"Words":       {strings.Repeat("x", long), false},
		"Digits":      {strings.Repeat("9", long), false},
		"AfterNumber": {"7" + strings.Repeat(" ", long) + "x", false},
		"Escaped":     {strings.Repeat("<", long), false},
		"Spaces":      {strings.Repeat(" ", long) + "7" + strings.Repeat("\n", long), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := []order.Pod{pod("good", "5")}
			for i := range 250 {
				p := pod(fmt.Sprint("p", i), tc.priority)
				p.UID = fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
				pods = append(pods, p)
			}
			first := order.Decide(order.Facts{Pods: pods, Now: noon})
			if len(*first.Record) > room/2 {
				t.Errorf("the record has %d bytes", len(*first.Record))
			}
			if isNumber := names(first.Delete) != "good"; isNumber != tc.isNumber {
				t.Errorf("a number: %t, want %t", isNumber, tc.isNumber)
			}
			for _, note := range first.Notes {
				if len(note) > 200 {
					t.Errorf("got %q", note)
				}
			}
			again := order.Decide(order.Facts{Pods: pods, Record: first.Record, Now: noon})
			again.Record = first.Record
			if diff := cmp.Diff(first, again); diff != "" {
				t.Errorf("read again it says something else (-first +again):\n%s", diff)
			}
		})
	}
}
