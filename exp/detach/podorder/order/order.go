// SPDX-License-Identifier: Apache-2.0

// Package order decides which pods of a leaving Node are stopped now, and for which ones the Node waits. It is pure: it
// does not use Kubernetes.
//
// Pods with the highest priority are stopped first. The next group follows when all of them are gone, by UID. The
// record lists the pods before the first one is stopped. A pod that is created later, for example by a DaemonSet that
// tolerates every taint, is not stopped, so that the process ends. The state of the pods shows the progress, so a
// restart loses nothing, and clocks need not agree.
package order

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// Pod is a pod on the Node that has not finished.
type Pod struct {
	Namespace, Name, UID string
	// Priority is the annotation's text. Nil means that there is none, so the pod is not stopped.
	Priority *string
	// Until is when its grace period ends. It is zero while the pod is not terminating.
	Until time.Time
}

// String returns namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Facts is the input of Decide.
type Facts struct {
	// Pods are the pods on the Node.
	Pods []Pod
	// Record is the content of the Node's annotation, nil if there is none.
	Record *string
	// Now is the current time.
	Now time.Time
}

// Decision is the result of Decide.
type Decision struct {
	// Record must be written before any pod is stopped. It is nil if it is written already.
	Record *string
	// Delete are the pods to stop now. Delete and Wait have the same priority.
	Delete []Pod
	// Wait are the pods that are terminating.
	Wait []Pod
	// Notes are messages for people. The same state gives the same texts.
	Notes []string
}

// Done reports whether no pod is left to stop.
func (d *Decision) Done() bool { return len(d.Delete) == 0 && len(d.Wait) == 0 }

const (
	// slack is how long a pod may exist after its grace period before the note mentions it.
	slack = 30 * time.Second
	// mostNamed is how many pods a note names.
	mostNamed = 5
	// maxKept bounds the recorded text of a priority, in bytes. No number is longer, and the record of all pods must
	// fit into the annotation.
	maxKept = 64
)

// Decide returns the next group of pods to stop or to wait for.
func Decide(f Facts) Decision {
	record, d, err := recordOf(f)
	if err != nil {
		return Decision{Notes: []string{fmt.Sprintf("pods are not stopped in order: the record of them on the Node cannot be parsed: %v", err)}}
	}
	var first int64
	for _, p := range slices.SortedFunc(slices.Values(f.Pods), byName) {
		priority, note := priorityOf(p, record)
		switch {
		case note != "":
			d.Notes = append(d.Notes, note)
		case priority == nil, !d.Done() && *priority < first:
		default:
			if *priority > first {
				d.Delete, d.Wait = nil, nil
			}
			first = *priority
			d.add(p)
		}
	}
	if !d.Done() {
		d.Notes = append([]string{waiting(first, slices.Concat(d.Delete, d.Wait), f.Now)}, d.Notes...)
	}
	return d
}

func byName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.String(), b.String()), cmp.Compare(a.UID, b.UID))
}

// add adds a pod to the current group.
func (d *Decision) add(p Pod) {
	if p.Until.IsZero() {
		d.Delete = append(d.Delete, p)
	} else {
		d.Wait = append(d.Wait, p)
	}
}

// priorityOf returns the recorded priority of a pod. It returns nil for a pod that is not stopped. note is the reason,
// empty if no priority was requested.
func priorityOf(p Pod, record map[string]string) (priority *int64, note string) {
	text, listed := record[p.UID]
	switch {
	case !listed && p.Priority == nil:
		return nil, ""
	case !listed:
		return nil, fmt.Sprintf("%s was created after the ordered stop began, and is not stopped", p)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return nil, fmt.Sprintf("%s is left alone: its priority %q is not a whole number", p, clip.To(text, maxKept))
	}
	return &n, ""
}

// recordOf returns the recorded priorities by UID. If there is no record, it creates one, and the Decision has its
// text.
func recordOf(f Facts) (map[string]string, Decision, error) {
	if f.Record != nil {
		record, err := parse(*f.Record)
		return record, Decision{}, err
	}
	record := map[string]string{}
	for _, p := range f.Pods {
		if p.Priority != nil {
			record[p.UID] = clip.To(strings.TrimSpace(*p.Priority), maxKept)
		}
	}
	if len(record) == 0 {
		return nil, Decision{}, nil
	}
	text, err := json.Marshal(record)
	return record, Decision{Record: new(string(text))}, err
}

// parse parses the text of a record.
func parse(text string) (map[string]string, error) {
	var record map[string]string
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return nil, err
	}
	if record == nil {
		return nil, errors.New("it is empty")
	}
	return record, nil
}

// waiting returns the note about the current group.
func waiting(priority int64, pods []Pod, now time.Time) string {
	slices.SortFunc(pods, byName)
	var names []string
	for _, p := range pods[:min(mostNamed, len(pods))] {
		name := p.String()
		if !p.Until.IsZero() && now.After(p.Until.Add(slack)) {
			name += " (still there after its grace period)"
		}
		names = append(names, name)
	}
	if more := len(pods) - mostNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("stopping pods of priority %d: %s", priority, strings.Join(names, ", "))
}
