// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// unwritten is how long before a manager's end its lines may be lost, if it has no time to
// write them, and how much later than it a request may come in. One that ends because it could
// not renew its lease has heard no answers for as long as it tried, which is 10 s.
const unwritten = 10 * time.Second

// answered is how long the manager waits for an answer at most before it says that it has none.
const answered = time.Minute

// Lines is that the manager's audit log and the API servers' say the same: each object of a
// machine that the manager made or deleted has a line that tells of a try, and each line
// that tells of a success has a write to its object. What was done in workload clusters
// counts where remote says that their audit logs are read, too. Killed is when managers were
// that had no time to write what they had done: nobody knows of which of it there are lines.
func Lines(remote bool, killed ...time.Time) Rule {
	return &lines{remote: remote, killed: killed, writes: map[string]Record{}, tried: map[act]bool{}, successes: map[string]Record{}}
}

type lines struct {
	remote bool
	killed []time.Time
	// ends are the creations and deletions, in order.
	ends []end
	// writes are the last ones to objects, and successes the last lines of them, by UID.
	writes, successes map[string]Record
	// tried is what lines say was tried.
	tried map[act]bool
	// unanswered are the lines of creations whose answer nobody heard: they name no object.
	unanswered []Record
}

// An act is one way to write to an object.
type act struct {
	uid     string
	creates bool
}

// An end is the beginning or the end of an object.
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
	// What is for all of a Cluster is installed there, and audit policies keep no bodies of it.
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

// unheard reports whether a line may be of the creation e: of an object of the same machine,
// at about the time.
func (e end) unheard(line Record) bool {
	return strings.HasPrefix(e.of.Object.Namespace+"/"+e.of.Object.Name, line.Line.Machine+"-") && line.At.Sub(e.of.At).Abs() <= answered
}
