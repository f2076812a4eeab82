// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// unwritten is the period before a manager's end whose lines may be lost, and by how much later a request may arrive. A
// manager that ends because it could not renew its lease has received no answers for up to 10 s.
const unwritten = 10 * time.Second

// answered bounds how long the manager waits for an answer before it records that there was none.
const answered = time.Minute

// Lines is the rule that the manager's audit log and the API servers' audit logs agree. For each object of a machine
// that the manager created or deleted there is a line about an attempt. For each line about a success there is a write
// to its object. Writes in workload clusters count only if remote, that is, if their audit logs are read, too. killed
// are the times at which managers were killed, so that lines may be missing.
func Lines(remote bool, killed ...time.Time) Rule {
	return &lines{remote: remote, killed: killed, writes: map[string]Record{}, tried: map[act]bool{}, successes: map[string]Record{}}
}

type lines struct {
	remote bool
	killed []time.Time
	// ends are the creations and deletions, in order.
	ends []end
	// writes are the last writes to objects, and successes the last lines about them, by UID.
	writes, successes map[string]Record
	// tried are the attempts that lines report.
	tried map[act]bool
	// unanswered are lines about creations without an answer: they name no object.
	unanswered []Record
}

// An act is a creation or deletion of an object.
type act struct {
	uid     string
	creates bool
}

// An end is the creation or the deletion of an object.
type end struct {
	act
	of Record
}

func (*lines) Name() string { return "lines" }
func (*lines) Question() string {
	return "Has each write of a machine's life its line in the manager's audit log, and each line its write?"
}

func (l *lines) Judge(r Record) []Verdict {
	switch {
	case r.Line != nil:
		l.note(r)
	case r.ByManager() && r.Accepted() && r.Subresource == "" && r.uid() != "":
		l.writes[r.uid()] = Record{ID: r.ID, At: r.At, Object: r.Object}
		if r.Object.ofLifecycle() && (r.creates() || r.Verb == "delete") && (l.remote || !r.Object.isNode()) {
			l.ends = append(l.ends, end{act{r.uid(), r.creates()}, l.writes[r.uid()]})
		}
	}
	return nil
}

func (l *lines) note(r Record) {
	line := r.Line
	remote := line.Kind == "NodePatch"
	if line.UID == "" && line.Kind == "Join" && (line.Outcome == "api_error" || line.Outcome == "canceled") {
		l.unanswered = append(l.unanswered, r)
	}
	if line.UID == "" || line.Outcome == "suppressed" || line.Outcome == "dryrun" || remote && !l.remote {
		return
	}
	l.tried[act{line.UID, line.Kind == "Join"}] = true
	// A line without a machine is about an installation in the Cluster. Audit policies keep no bodies of these
	// requests.
	if line.Outcome == "success" && line.Machine != "" {
		l.successes[line.UID] = r
	}
}

func (l *lines) End() []Verdict {
	var verdicts []Verdict
	for _, e := range l.ends {
		if l.tried[e.act] {
			verdicts = append(verdicts, kept(e.of)...)
			continue
		}
		if e.creates && slices.ContainsFunc(l.unanswered, e.unheard) {
			verdicts = append(verdicts, kept(e.of)...)
			continue
		}
		if slices.ContainsFunc(l.killed, func(at time.Time) bool { return e.of.At.Sub(at).Abs() <= unwritten }) {
			continue
		}
		what := "deleted"
		if e.creates {
			what = "created"
		}
		verdicts = append(verdicts, broken(e.of, "the object was "+what+", and the manager's audit log has no line of it", "each write should have its line")...)
	}
	for _, uid := range slices.Sorted(maps.Keys(l.successes)) {
		if _, ok := l.writes[uid]; ok {
			verdicts = append(verdicts, kept(l.successes[uid])...)
			continue
		}
		verdicts = append(verdicts, broken(l.successes[uid], "a line says that object "+uid+" was written, and no API server has that", "each line of a success should have its write")...)
	}
	return verdicts
}

// unheard reports whether a line can be about the creation e: of an object of the same machine, at about the same time.
func (e end) unheard(line Record) bool {
	return strings.HasPrefix(e.of.Object.Namespace+"/"+e.of.Object.Name, line.Line.Machine+"-") && line.At.Sub(e.of.At).Abs() <= answered
}
