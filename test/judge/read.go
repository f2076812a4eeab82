// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
)

// Read parses the audit log of the API server of one cluster. cluster is the name in verdicts. It yields each request
// for a change once, when it is answered, in the order of the log. It ignores an incomplete last line. Any
// other invalid line is an error, and ends the sequence.
func Read(cluster string, log io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := eachLine(log, func(line []byte) (bool, error) {
			if reads(line) {
				return true, nil
			}
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return false, err
			}
			if !e.counts() {
				return true, nil
			}
			return yield(e.record(cluster), nil), nil
		})
		if err != nil {
			yield(Record{}, fmt.Errorf("reading audit log of %s: %w", cluster, err))
		}
	}
}

// ReadLines parses the manager's audit log in the same way.
func ReadLines(log io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		err := eachLine(log, func(line []byte) (bool, error) {
			var e struct {
				Line
				Time time.Time `json:"time"`
				ID   string    `json:"action_id"`
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return false, err
			}
			namespace, name, _ := strings.Cut(e.Machine, "/")
			about := Object{"audit log", scheduledMachines.Group, scheduledMachines.Resource, namespace, name}
			return yield(Record{ID: e.ID, At: e.Time, Object: about, Line: &e.Line}, nil), nil
		})
		if err != nil {
			yield(Record{}, fmt.Errorf("reading the manager's audit log: %w", err))
		}
	}
}

// eachLine calls use for every complete line, until use returns false.
func eachLine(log io.Reader, use func([]byte) (more bool, err error)) error {
	r := bufio.NewReaderSize(log, 1<<16)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		more, err := use(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if !more {
			return nil
		}
	}
}

var (
	verbKey   = []byte(`"verb":"`)
	readVerbs = [][]byte{[]byte(`get"`), []byte(`list"`), []byte(`watch"`)}
)

// reads reports whether a line is about a request that changes nothing. Most are, and decoding them would be slow. The
// first verb in a line is the request's: text of other authors comes later, and its quotes are escaped.
func reads(line []byte) bool {
	_, verb, found := bytes.Cut(line, verbKey)
	return found && slices.ContainsFunc(readVerbs, func(v []byte) bool { return bytes.HasPrefix(verb, v) })
}

// changing are the verbs of changes.
var changing = []string{"create", "update", "patch", "delete", "deletecollection"}

// An event is a line of an API server's audit log.
type event struct {
	AuditID, Stage, Verb, UserAgent string
	User                            struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef *struct{ Resource, Namespace, Name, UID, APIGroup, Subresource string }

	ResponseStatus                           struct{ Code int }
	RequestObject, ResponseObject            json.RawMessage
	RequestReceivedTimestamp, StageTimestamp time.Time
}

func (e *event) counts() bool {
	return e.ObjectRef != nil && e.Stage != "RequestReceived" && e.Stage != "ResponseStarted" && slices.Contains(changing, e.Verb)
}

func (e *event) record(cluster string) Record {
	ref := e.ObjectRef
	r := Record{
		ID: e.AuditID, At: e.RequestReceivedTimestamp, Took: e.StageTimestamp.Sub(e.RequestReceivedTimestamp), User: e.User.Username, Program: e.UserAgent, Verb: e.Verb,
		Object:      Object{cluster, ref.APIGroup, ref.Resource, ref.Namespace, ref.Name},
		Subresource: ref.Subresource, Code: e.ResponseStatus.Code,
	}
	if nodes := e.User.Extra[nodeOfToken]; len(nodes) == 1 {
		r.Node = nodes[0]
	}
	if !r.Object.ofLifecycle() && !r.Object.isScheduledMachine() && !r.Object.isCluster() && !r.ByManager() && !r.ByAgent() {
		return r // No rule reads its body.
	}
	r.Sent = sentOf(e.RequestObject)
	if r.Accepted() {
		r.Got = stateOf(e.ResponseObject, r.Verb, &r.Object.Name)
	}
	return r
}
