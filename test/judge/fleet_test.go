// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// A fleet writes the logs of machines that join and leave correctly, 11 s apart, except for one planted break. The
// order of events is fixed, so that each log can be written separately.
type fleet struct {
	// machines is their number.
	machines int
	// plant is the name of the rule that the middle machine breaks; empty is none.
	plant string

	// log is the log being written. requests counts the requests of all logs.
	log      string
	out      io.Writer
	requests int
	now      time.Time
	version  int
}

// The logs of a fleet.
const (
	managementLog = "management"
	workloadLog   = "workload"
	decisionLog   = "decisions"
)

// pace is the time between two machines; a second more than cap's window.
const pace = 11 * time.Second

// quietTime is a period without events, before the middle machine.
func (f *fleet) quietTime() (from, to time.Time) {
	middle := begin.Add(time.Duration(f.machines/2) * pace)
	return middle.Add(-2 * time.Second), middle.Add(-time.Second)
}

// records returns the records of all logs, as the judge reads them.
func (f *fleet) records() iter.Seq2[judge.Record, error] {
	var logs []iter.Seq2[judge.Record, error]
	for _, name := range []string{managementLog, workloadLog, decisionLog} {
		r, w := io.Pipe()
		one := &fleet{machines: f.machines, plant: f.plant, log: name, out: w}
		go func() { _ = w.CloseWithError(one.write()) }()
		if name == decisionLog {
			logs = append(logs, judge.ReadLines(r))
		} else {
			logs = append(logs, judge.Read(name, r))
		}
	}
	return judge.Merge(logs...)
}

func (f *fleet) write() error {
	for i := range f.machines {
		f.now = begin.Add(time.Duration(i) * pace)
		if err := f.life(i); err != nil {
			return err
		}
	}
	return nil
}

// bulk is a part of a response that no rule reads.
var bulk = strings.Repeat(`{"manager":"capi","operation":"Update","fieldsV1":{"f:status":{"f:conditions":{}}}},`, 30) + `{}`

// A call is one request of the log.
type call struct {
	log, user, program, node string
	verb                     string
	group, resource          string
	name, subresource        string
	sent                     string
	// got is the metadata of the response without the common part, and more is the remaining body.
	got, more string
	uid       string
	code      int
}

func (f *fleet) call(c call) error {
	f.requests++
	f.now = f.now.Add(50 * time.Millisecond)
	if c.log == "" {
		c.log = managementLog
	}
	if c.log != f.log {
		return nil
	}
	f.version++
	if c.code == 0 {
		c.code = 200
	}
	extra := ""
	if c.node != "" {
		extra = fmt.Sprintf(`,"extra":{"authentication.kubernetes.io/node-name":[%q]}`, c.node)
	}
	sent := ""
	if c.sent != "" {
		sent = `,"requestObject":` + c.sent
	}
	_, err := fmt.Fprintf(f.out, `{"kind":"Event","auditID":"%s-%d","stage":"ResponseComplete","requestURI":"/x","verb":%q,"user":{"username":%q%s},"userAgent":%q,`+
		`"objectRef":{"resource":%q,"namespace":"farm","name":%q,"apiGroup":%q,"subresource":%q},"responseStatus":{"code":%d}%s,`+
		`"responseObject":{"kind":"X","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"%s,"managedFields":[%s]}%s},`+
		`"requestReceivedTimestamp":%q,"stageTimestamp":%q}`+"\n",
		c.log, f.requests, c.verb, c.user, extra, c.program, c.resource, c.name, c.group, c.subresource, c.code, sent,
		c.name, c.uid, f.version, c.got, bulk, c.more, f.now.Format(time.RFC3339Nano), f.now.Add(10*time.Millisecond).Format(time.RFC3339Nano))
	return err
}

// writeAuditLine writes a line of the manager's audit log.
func (f *fleet) writeAuditLine(kind, machine, uid string) error {
	if f.log != decisionLog {
		return nil
	}
	_, err := fmt.Fprintf(f.out, `{"time":%q,"cycle":0,"kind":%q,"machine":"farm/%s","cluster":"farm/lab","outcome":"success","action_id":"a-%s","uid":%q}`+"\n",
		f.now.Format(time.RFC3339Nano), kind, machine, uid, uid)
	return err
}

// life writes the life of a machine: it joins, and leaves because its window ends or its owner requests it.
func (f *fleet) life(i int) error {
	l := life{fleet: f, name: fmt.Sprintf("m%d", i), owned: i%10 == 0}
	if i == f.machines/2 {
		l.plant, l.owned = f.plant, f.plant == "emergency"
	}
	return firstError(l.quiet, l.join, l.run, l.leave)
}

func firstError(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// A life is the life of one machine.
type life struct {
	*fleet
	name  string
	owned bool
	plant string
}

func (l life) labels() string {
	return fmt.Sprintf(`,"labels":{"5spot.finos.org/scheduled-machine":%q,"cluster.x-k8s.io/cluster-name":"lab"}`, l.name)
}

// of is a request of the manager about one of the machine's objects.
func (l life) of(verb, kind, sent, got string) call {
	c := call{user: manager, program: "manager/v1 5spot-controller-manager", verb: verb, name: l.name, uid: kind + l.name, sent: sent, got: got}
	switch kind {
	case "s":
		c.group, c.resource = "5spot.finos.org", "scheduledmachines"
	case "m":
		c.group, c.resource, c.got = "cluster.x-k8s.io", "machines", l.labels()+got
	case "i":
		c.group, c.resource, c.got = "infrastructure.cluster.x-k8s.io", "planemachines", `,"ownerReferences":[{"uid":"m`+l.name+`","controller":true}]`+got
	case "b":
		c.group, c.resource = "bootstrap.cluster.x-k8s.io", "planeconfigs"
	case "n":
		c.log, c.user, c.resource = workloadLog, "kubernetes-admin", "nodes"
		c.got = fmt.Sprintf(`,"annotations":{"cluster.x-k8s.io/cluster-namespace":"farm","cluster.x-k8s.io/owner-kind":"ScheduledMachine","cluster.x-k8s.io/owner-name":%q}`, l.name)
	}
	return c
}

func as(user string, c call) call {
	c.user, c.program = user, user
	return c
}

func part(subresource string, c call) call {
	c.subresource = subresource
	return c
}

func creates(c call) call {
	c.code = 201
	return c
}

// calls sends requests one after the other.
func (l life) calls(calls ...call) error {
	for _, c := range calls {
		if err := l.call(c); err != nil {
			return err
		}
	}
	return nil
}

// quiet skips the second before a machine joins.
func (l life) quiet() error {
	at := l.now
	defer func() { l.now = at }()
	l.now = at.Add(-1900 * time.Millisecond)
	beat := call{user: manager, verb: "update", group: "coordination.k8s.io", resource: "leases", name: "leader"}
	news := call{user: manager, verb: "create", group: "events.k8s.io", resource: "events", name: "e" + l.name}
	conditions := part("status", l.of("patch", "s", `{"metadata":{"resourceVersion":"1"},"status":{"conditions":[]}}`, ""))
	phase := part("status", l.of("patch", "s", `{"metadata":{"resourceVersion":"1"},"status":{"phase":"Active"}}`, ""))
	switch l.plant {
	case "silence":
		return l.calls(beat, conditions, phase, news)
	case "settled":
		return l.calls(beat, news)
	}
	return l.calls(beat)
}

func (l life) join() error {
	err := l.calls(
		as(person, creates(l.of("create", "s", `{}`, ""))),
		as(person, l.of("get", "s", "", "")),
		creates(l.of("create", "b", `{}`, "")),
		creates(l.of("create", "i", `{}`, "")),
		creates(l.of("patch", "m", `{"metadata":{"annotations":{"`+preDrain+`":""}}}`, `,"finalizers":["x"],"annotations":{"`+preDrain+`":""}`)),
	)
	for _, kind := range []string{"b", "i", "m"} {
		if err == nil {
			err = l.writeAuditLine("Join", l.name, kind+l.name)
		}
	}
	return err
}

func (l life) run() error {
	status := part("status", l.of("patch", "m", `{"metadata":{"uid":"m`+l.name+`"},"status":{}}`, `,"finalizers":["x"],"annotations":{"`+preDrain+`":""}`))
	asks := call{log: workloadLog, user: agent, node: l.name, verb: "patch", resource: "nodes", name: l.name, uid: "n" + l.name, sent: `{"metadata":{"uid":"x","annotations":{"a":"b"}}}`}
	if l.plant == "agent" {
		asks.name = "another"
	}
	return l.calls(
		as(core, status), status, as(core, l.of("get", "m", "", "")), as(core, l.of("watch", "m", "", "")), asks,
		l.of("patch", "n", `[{"op":"test","path":"/metadata/uid","value":"n"},{"op":"add","path":"/spec/taints","value":[]}]`, ""),
	)
}

func (l life) leave() error {
	if l.owned {
		return l.reclaim()
	}
	return l.depart()
}

// on is the departure record of a Machine, with further fields.
func (l life) on(lane, reason string) (sent, got string) {
	record := fmt.Sprintf(`{"lane":%q,"reason":%q,"since":%q,"actionID":"a-m%s"}`, lane, reason, l.now.Format(time.RFC3339), l.name)
	return fmt.Sprintf(`{"metadata":{"uid":"m%s","annotations":{%q:%q,%q:null}}}`, l.name, departure, record, preDrain),
		fmt.Sprintf(`,"finalizers":["x"],"annotations":{%q:%q}`, departure, record)
}

// options are the options of a deletion.
func (l life) options(kind string) string {
	return fmt.Sprintf(`{"kind":"DeleteOptions","preconditions":{"uid":"%s%s"}}`, kind, l.name)
}

const dies = `,"deletionTimestamp":"2026-03-02T17:00:00Z"`

func (l life) depart() error {
	sent, got := l.on("scheduled", "WindowClosed")
	record, remove := l.of("patch", "m", sent, got), l.of("delete", "m", l.options("m"), dies+got)
	gone := as(core, l.of("update", "m", `{}`, dies))
	calls := []call{record, remove, gone, l.of("delete", "i", l.options("i"), dies+`,"finalizers":["x"]`)}
	switch l.plant {
	case "steps":
		remove.got = l.labels() + dies + `,"finalizers":["x"]`
		calls = []call{remove, gone, calls[3]}
	case "precondition":
		calls[3].sent = `{"kind":"DeleteOptions"}`
	case "cap":
		also := record // another client has deleted this one
		also.name, also.uid, also.got = "another", "another", l.labels()+dies+got
		calls = slices.Insert(calls, 1, also)
	}
	return firstError(
		func() error { return l.calls(calls...) },
		func() error {
			if l.plant == "lines" {
				return nil
			}
			return l.writeAuditLine("Depart", l.name, "m"+l.name)
		},
		func() error { return l.writeAuditLine("Remove", l.name, "i"+l.name) },
	)
}

func (l life) reclaim() error {
	sent, got := l.on("exempt", "EmergencyReclaim")
	calls := []call{
		l.of("patch", "s", `{"metadata":{"uid":"s`+l.name+`","annotations":{"`+mark+`":"{}"}}}`, `,"annotations":{"`+mark+`":"{}"}`),
		l.of("patch", "m", sent, got),
		l.of("delete", "m", l.options("m"), dies+got),
		l.of("delete", "i", l.options("i"), dies+`,"finalizers":["x"]`),
		as(core, l.of("update", "m", `{}`, dies)),
		l.of("patch", "s", `{"metadata":{"uid":"s`+l.name+`","annotations":{"`+mark+`":null,"`+served+`":"{}"}},"spec":{"schedule":{"enabled":false}}}`, `,"annotations":{"`+served+`":"{}"}`),
		l.of("patch", "n", `{"metadata":{"resourceVersion":"1","annotations":{"`+request+`":null}}}`, ""),
	}
	if l.plant == "emergency" {
		calls[4], calls[5] = calls[5], calls[4]
	}
	return firstError(
		func() error { return l.calls(calls...) },
		func() error { return l.writeAuditLine("EmergencyRemove", l.name, "m"+l.name) },
		func() error { return l.writeAuditLine("EmergencyRemove", l.name, "i"+l.name) },
	)
}

// rules returns all rules, for a fleet.
func (f *fleet) rules() []judge.Rule {
	from, to := f.quietTime()
	return append(judge.Default(), judge.Cap(50_000), judge.Lines(true),
		judge.Quiet(judge.Silence{From: from, To: to}), judge.Settled(from, to))
}

// TestAHundredThousandRequestsWithoutABreak checks that correct logs of any length are judged in seconds, without a
// break and without buffering them.
func TestAHundredThousandRequestsWithoutABreak(t *testing.T) {
	system.Long(t)
	f := &fleet{machines: 6300}
	requests := f.count(t)
	began := time.Now()
	ruling, err := judge.Run(f.records(), f.rules()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range ruling.Breaks[:min(5, len(ruling.Breaks))] {
		t.Error(v)
	}
	for _, rule := range f.rules() {
		if ruling.Judged[rule.Name()] == 0 {
			t.Errorf("rule %s had nothing to say", rule.Name())
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("%d requests judged in %v, %d MB taken from the system: %v", requests, time.Since(began).Round(time.Millisecond), memory.Sys>>20, ruling.Judged)
	if requests < 100_000 {
		t.Errorf("%d requests are too few", requests)
	}
}

// count returns the number of requests in the logs.
func (f *fleet) count(t *testing.T) int {
	t.Helper()
	dry := &fleet{machines: f.machines, plant: f.plant}
	if err := dry.write(); err != nil {
		t.Fatal(err)
	}
	return dry.requests
}

// TestOneBrokenRequestIsFound checks that each rule finds the one request that breaks it, and that no other rule
// reports it.
func TestOneBrokenRequestIsFound(t *testing.T) {
	for _, name := range []string{"steps", "emergency", "agent", "precondition", "cap", "silence", "settled", "lines"} {
		t.Run(name, func(t *testing.T) {
			f := &fleet{machines: 200, plant: name}
			rules := slices.DeleteFunc(f.rules(), func(r judge.Rule) bool {
				// Status writes under a pause are allowed, and so are Events: the fleet is not settled then.
				return name == "silence" && r.Name() == "settled" || name == "settled" && r.Name() == "silence"
			})
			ruling, err := judge.Run(f.records(), rules...)
			if err != nil {
				t.Fatal(err)
			}
			var broken []string
			for _, v := range ruling.Breaks {
				broken = append(broken, v.Rule)
				t.Log(v)
			}
			if diff := cmp.Diff([]string{name}, broken); diff != "" {
				t.Errorf("breaks: -want, +got:\n%s", diff)
			}
		})
	}
}
