// SPDX-License-Identifier: Apache-2.0

// Package order answers one question: which pods of a Node that leaves are to be stopped
// now, and which are waited for? It knows nothing of Kubernetes: it neither reads a pod nor
// deletes one.
//
// Pods of the highest priority are stopped first, and the next ones when each of those is
// gone, by its UID. Which pods these are is written down before the first is deleted: one
// that comes later, such as from a DaemonSet that tolerates every taint, is left alone, and
// so the phase ends. What has been deleted is seen on the pods. So a restart loses nothing,
// and no clock has to agree with another.
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

// A Pod is what matters of a pod that is on the Node, and has not finished.
type Pod struct {
	Namespace, Name, UID string
	// Priority is what people wrote, nil if nothing: the pod is left alone.
	Priority *string
	// Until is when its grace period ends, zero while it is not being deleted.
	Until time.Time
}

// String is the pod as people name it.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Facts are everything that a decision depends on.
type Facts struct {
	// Pods are those on the Node.
	Pods []Pod
	// Record is what was written down of the pods that are to be stopped, nil if nothing.
	Record *string
	// Now is the time.
	Now time.Time
}

// A Decision says what to do.
type Decision struct {
	// Record is to be written down before any pod is deleted, nil if it is already.
	Record *string
	// Delete are the pods to delete now. Delete and Wait have the same priority.
	Delete []Pod
	// Wait are the pods that are on their way.
	Wait []Pod
	// Notes are for people. The same state gives the same texts.
	Notes []string
}

// Done reports whether nothing is left to be stopped.
func (d *Decision) Done() bool { return len(d.Delete) == 0 && len(d.Wait) == 0 }

const (
	// slack is how long a pod may be there after its grace period before people are told.
	slack = 30 * time.Second
	// mostNamed is how many pods are named in a note.
	mostNamed = 5
	// mostKept bounds what is kept of a priority, in bytes. No number is longer, and what is written
	// down for all pods must fit on the Node.
	mostKept = 64
)

// Decide says what is next for the pods of a Node.
func Decide(f Facts) Decision {
	record, d, err := recordOf(f)
	if err != nil {
		return Decision{Notes: []string{fmt.Sprintf("pods are not stopped in order, because it cannot be read which were to be: %v", err)}}
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

// add adds a pod of the group.
func (d *Decision) add(p Pod) {
	if p.Until.IsZero() {
		d.Delete = append(d.Delete, p)
	} else {
		d.Wait = append(d.Wait, p)
	}
}

// priorityOf is what is written down of a pod, nil for one that is left alone: note says why,
// unless nobody wanted it stopped.
func priorityOf(p Pod, record map[string]string) (priority *int64, note string) {
	text, listed := record[p.UID]
	switch {
	case !listed && p.Priority == nil:
		return nil, ""
	case !listed:
		return nil, fmt.Sprintf("%s came after pods began to be stopped, and is left alone", p)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return nil, fmt.Sprintf("%s is left alone: its priority %q is not a whole number", p, clip.To(text, mostKept))
	}
	return &n, ""
}

// recordOf is what is written down, or is to be.
func recordOf(f Facts) (map[string]string, Decision, error) {
	if f.Record != nil {
		record, err := parse(*f.Record)
		return record, Decision{}, err
	}
	record := map[string]string{}
	for _, p := range f.Pods {
		if p.Priority != nil {
			record[p.UID] = clip.To(strings.TrimSpace(*p.Priority), mostKept)
		}
	}
	if len(record) == 0 {
		return nil, Decision{}, nil
	}
	text, err := json.Marshal(record)
	return record, Decision{Record: new(string(text))}, err
}

// parse reads what recordOf has made: priorities by UID, as people wrote them, without what is too
// long for a number.
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

// waiting says whom the Node waits for.
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

// Refused says that a pod could not be stopped yet, and why.
func Refused(p Pod, err error) string { return fmt.Sprintf("%s cannot be stopped yet: %v", p, err) }
