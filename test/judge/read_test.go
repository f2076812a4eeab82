// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"errors"
	"iter"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// line is a request of the manager about a Machine, with the given differences.
func line(verb, rest string) string {
	return `{"auditID":"1","stage":"ResponseComplete","verb":"` + verb + `","user":{"username":"` + manager + `"},` +
		`"objectRef":{"resource":"machines","namespace":"farm","name":"office-machine","apiGroup":"cluster.x-k8s.io"},` +
		`"requestReceivedTimestamp":"2026-03-02T17:00:00Z","stageTimestamp":"2026-03-02T17:00:01Z"` + rest + "}\n"
}

func TestRead(t *testing.T) {
	read := judge.Record{ID: "1", At: begin, Took: time.Second, User: manager, Verb: "patch", Object: lab}
	answered := func(r *judge.Record) { r.Code = 200 }
	value := "x"
	cases := map[string]struct {
		reason, log string
		want        []judge.Record
		err         string
	}{
		"Body": {
			reason: "What is sent, and what there is then.",
			log: line("patch", `,"responseStatus":{"code":200},"requestObject":{"metadata":{"uid":"m","annotations":{"a":"x","b":null}},"spec":{"schedule":{"enabled":false}}},`+
				`"responseObject":{"kind":"Machine","metadata":{"name":"office-machine","uid":"m","resourceVersion":"7","labels":{"l":"v"},"annotations":{"a":"x"},"finalizers":["f"],"ownerReferences":[{"uid":"o"},{"uid":"s","controller":true}]}}`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Sent = &judge.Sent{UID: "m", Annotations: map[string]*string{"a": &value, "b": nil}, Enabled: new(bool), Changes: []string{"metadata/annotations", "spec/schedule"}}
				r.Got = &judge.State{UID: "m", Owner: "s", Version: 7, Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "x"}}
			})},
		},
		"JSONPatch": {
			reason: "A test names the object; a key has its slash back.",
			log: line("patch", `,"responseStatus":{"code":200},"requestObject":[{"op":"test","path":"/metadata/uid","value":"m"},{"op":"test","path":"/metadata/resourceVersion","value":"7"},`+
				`{"op":"add","path":"/metadata/annotations/a~1b","value":"x"},{"op":"remove","path":"/metadata/annotations/c"},{"op":"replace","path":"/spec/taints/0","value":{}}]`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Sent = &judge.Sent{UID: "m", ResourceVersion: "7", Annotations: map[string]*string{"a/b": &value, "c": nil}, Changes: []string{"metadata/annotations", "metadata/annotations", "spec/taints"}}
			})},
		},
		"DeletionAnsweredByStatus": {
			reason: "An object without finalizers is gone at once.",
			log:    line("delete", `,"responseStatus":{"code":200},"requestObject":{"kind":"DeleteOptions","preconditions":{"uid":"m","resourceVersion":"7"}},"responseObject":{"kind":"Status","details":{"uid":"m"}}`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Verb, r.Sent = "delete", &judge.Sent{UID: "m", ResourceVersion: "7", Changes: []string{"preconditions/resourceVersion", "preconditions/uid"}}
				r.Got = &judge.State{UID: "m", Deleting: true, Gone: true}
			})},
		},
		"ScheduleOff": {
			reason: "The response has the schedule of a ScheduledMachine. Other kinds have another type there.",
			log: line("update", `,"responseStatus":{"code":200},"responseObject":{"kind":"ScheduledMachine","metadata":{"uid":"s","finalizers":["f"]},"spec":{"schedule":{"enabled":false}}}`) +
				line("update", `,"responseStatus":{"code":200},"responseObject":{"kind":"CronJob","spec":{"schedule":"@daily"},"metadata":{"uid":"c","finalizers":["f"]}}`),
			want: []judge.Record{
				with(read, answered, func(r *judge.Record) {
					r.Verb, r.Got = "update", &judge.State{UID: "s", Annotations: map[string]string{}, Disabled: true}
				}),
				with(read, answered, func(r *judge.Record) {
					r.Verb, r.Got = "update", &judge.State{UID: "c", Annotations: map[string]string{}}
				}),
			},
		},
		"Machine": {
			reason: "The response has what a Machine refers to, in both versions of the API, and whether it has a Node.",
			log: line("update", `,"responseStatus":{"code":200},"responseObject":{"kind":"Machine","metadata":{"uid":"m","generation":2,"finalizers":["f"]},`+
				`"spec":{"clusterName":"lab","bootstrap":{"configRef":{"apiGroup":"bootstrap.cluster.x-k8s.io","kind":"PlaneConfig","name":"b"}},`+
				`"infrastructureRef":{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta1","kind":"PlaneMachine","name":"i"}},"status":{"nodeRef":{"name":"n"}}}`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Verb, r.Got = "update", &judge.State{
					UID: "m", Annotations: map[string]string{}, Generation: 2, ClusterName: "lab", HasNode: true,
					Parts: []judge.Part{{Group: "bootstrap.cluster.x-k8s.io", Name: "b"}, {Group: "infrastructure.cluster.x-k8s.io", Name: "i"}},
				}
			})},
		},
		"Announcement": {
			reason: "The response has what a ScheduledMachine announces, and its kill switch.",
			log: line("patch", `,"responseStatus":{"code":200},"responseObject":{"kind":"ScheduledMachine","metadata":{"uid":"s","generation":3,"finalizers":["f"]},"spec":{"killSwitch":true},`+
				`"status":{"observedGeneration":2,"nextCleanup":"2026-03-02T17:00:00Z","nextCleanupAnnouncedTime":"2026-03-02T16:00:00Z"}}`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Got = &judge.State{
					UID: "s", Annotations: map[string]string{}, Generation: 3, ObservedGeneration: 2, KillSwitch: true,
					NextCleanup: begin, NextCleanupAnnouncedTime: begin.Add(-time.Hour),
				}
			})},
		},
		"LastFinalizer": {
			reason: "Whoever takes the last one off ends the object.",
			log:    line("update", `,"responseStatus":{"code":200},"responseObject":{"kind":"Machine","metadata":{"uid":"m","deletionTimestamp":"2026-03-02T17:00:00Z"}}`),
			want: []judge.Record{with(read, answered, func(r *judge.Record) {
				r.Verb, r.Got = "update", &judge.State{UID: "m", Annotations: map[string]string{}, Deleting: true, Gone: true}
			})},
		},
		"Refused": {
			reason: "What a refusal says is no state.",
			log:    line("patch", `,"responseStatus":{"code":409},"responseObject":{"kind":"Status","metadata":{}}`),
			want:   []judge.Record{with(read, func(r *judge.Record) { r.Code = 409 })},
		},
		"BoundToken": {
			reason: "It says which Node an agent is on.",
			log:    strings.Replace(line("patch", ""), manager+`"`, agent+`","extra":{"authentication.kubernetes.io/node-name":["box"]}`, 1),
			want:   []judge.Record{with(read, func(r *judge.Record) { r.User, r.Node = agent, "box" })},
		},
		"GeneratedName": {
			reason: "A name that the API server made is in the answer.",
			log:    strings.Replace(line("create", `,"responseStatus":{"code":201},"responseObject":{"metadata":{"uid":"m","name":"office-machine"}}`), `"name":"office-machine","api`, `"api`, 1),
			want: []judge.Record{with(read, func(r *judge.Record) {
				r.Verb, r.Code, r.Got = "create", 201, &judge.State{UID: "m", Annotations: map[string]string{}}
			})},
		},
		"Reads": {
			reason: "Nothing is changed by them, nor by a verb in a body.",
			log:    line("get", `,"requestObject":{"verb":"delete"}`) + line("watch", "") + line("list", ""),
		},
		"VerbInABody": {
			reason: "The request's own verb counts.",
			log:    line("patch", `,"requestObject":{"verb":"get"}`),
			want:   []judge.Record{with(read, func(r *judge.Record) { r.Sent = &judge.Sent{Changes: []string{"verb"}} })},
		},
		"NotAnswered": {
			reason: "A request is judged once.",
			log:    strings.Replace(line("patch", ""), "ResponseComplete", "RequestReceived", 1),
		},
		"BeingWritten": {
			reason: "The rest of the last line is still to come.",
			log:    line("patch", "") + `{"auditID":"2","verb":"pat`,
			want:   []judge.Record{read},
		},
		"Torn": {
			reason: "What was in it nobody knows.",
			log:    line("patch", "") + "{\n" + line("patch", ""),
			want:   []judge.Record{read}, err: "reading audit log of management: line 2: unexpected end of JSON input",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := all(judge.Read("management", strings.NewReader(tc.log)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nrecords: -want, +got:\n%s", tc.reason, diff)
			}
			if text := message(err); text != tc.err {
				t.Errorf("%s\nerror %q, not %q", tc.reason, text, tc.err)
			}
		})
	}
}

// TestUnreadableLog checks that a log that ends too early is an error.
func TestUnreadableLog(t *testing.T) {
	broken := errors.New("disk")
	if _, err := judge.Run(judge.Merge(judge.Read("management", iotest.ErrReader(broken))), judge.Default()...); !errors.Is(err, broken) {
		t.Errorf("an unreadable log gives %v", err)
	}
	if _, err := judge.Run(judge.Merge(judge.ReadLines(strings.NewReader("{\n")))); err == nil {
		t.Error("an unreadable line of the manager's log is not told")
	}
}

func TestReadLines(t *testing.T) {
	got, err := all(judge.ReadLines(strings.NewReader(`{"time":"2026-03-02T17:00:00Z","cycle":0,"kind":"Depart","machine":"farm/office","cluster":"farm/lab","reason":"WindowClosed","grace_seconds":300,` +
		`"outcome":"success","action_id":"a","lane":"scheduled","uid":"m"}` + "\n")))
	about := office
	about.Cluster = "audit log"
	want := []judge.Record{{ID: "a", At: begin, Object: about, Line: &judge.Line{Kind: "Depart", Machine: "farm/office", Reason: "WindowClosed", Outcome: "success", UID: "m"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("records: %v, -want, +got:\n%s", err, diff)
	}
}

// TestMergeOrdersByBeginning checks that a request comes after its cause, even if its record comes earlier.
func TestMergeOrdersByBeginning(t *testing.T) {
	at := func(id string, after time.Duration) judge.Record { return judge.Record{ID: id, At: begin.Add(after)} }
	slow := []judge.Record{at("b", 2*time.Second), at("a", time.Second), at("d", 4*time.Minute), at("e", 5*time.Minute)}
	other := []judge.Record{at("c", 3*time.Second), at("f", 6*time.Minute)}
	got, err := all(judge.Merge(given(slow), given(other), given(nil)))
	var ids []string
	for _, r := range got {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff("a b c d e f", strings.Join(ids, " ")); diff != "" || err != nil {
		t.Errorf("order: %v, -want, +got:\n%s", err, diff)
	}
}

// TestMergeKeepsLittle checks that Merge yields records that are 90 s old.
func TestMergeKeepsLittle(t *testing.T) {
	taken := 0
	long := func(yield func(judge.Record, error) bool) {
		for taken = 0; ; taken++ {
			if !yield(judge.Record{At: begin.Add(time.Duration(taken) * time.Second)}, nil) {
				return
			}
		}
	}
	for range judge.Merge(long) {
		break
	}
	if taken > 100 {
		t.Errorf("%d records were read before the first was handed on", taken)
	}
}

// TestTheJudgeKnowsNothingOfTheProduct checks that the judge imports no code of the product.
func TestTheJudgeKnowsNothingOfTheProduct(t *testing.T) {
	const module = "github.com/finos/cluster-api-addon-provider-5spot/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), module+"test/judge\n") {
		t.Fatalf("the judge is not in its own list:\n%s", out)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		standard := !strings.Contains(strings.Split(path, "/")[0], ".")
		if !standard && path != module+"test/judge" && !strings.HasPrefix(path, module+"test/judge/") {
			t.Errorf("the judge imports %s", path)
		}
	}
}

func given(records []judge.Record) iter.Seq2[judge.Record, error] {
	return func(yield func(judge.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// all returns the records before the first error.
func all(records iter.Seq2[judge.Record, error]) ([]judge.Record, error) {
	var got []judge.Record
	for r, err := range records {
		if err != nil {
			return got, err
		}
		got = append(got, r)
	}
	return got, nil
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
