// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// An auditLog reads the new lines of an API server's audit log.
type auditLog struct {
	dir    string
	offset int64
}

// A request is the required part of a line. Times are the API server's, in microseconds.
type request struct {
	Stage     string
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Namespace, Name, Subresource, APIGroup string }

	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

// next returns the finished requests since the last call.
func (a *auditLog) next() ([]request, error) {
	f, err := os.Open(filepath.Join(a.dir, "audit.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	var out []request
	for r := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil // a line without an end is still being written
		}
		if err != nil {
			return nil, err
		}
		a.offset += int64(len(line))
		var q request
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, fmt.Errorf("reading audit log: %w", err)
		}
		if q.Stage == "ResponseComplete" {
			out = append(out, q)
		}
	}
}

// ours reports whether the manager sent the request. In a workload cluster its user is Cluster API's, and its user
// agent identifies it.
func (q request) ours() bool {
	return q.User.Username == system.ManagerUser || strings.Contains(q.UserAgent, system.ManagerName)
}

func (q request) isWrite() bool {
	switch q.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	default:
		return false
	}
}

// accepted reports whether the request was carried out.
func (q request) accepted() bool { return q.ResponseStatus.Code >= 200 && q.ResponseStatus.Code < 300 }

func (q request) isEvent() bool { return q.ObjectRef.Resource == "events" }

// lifecycle reports whether the request writes an object, but neither an Event nor a status.
func (q request) lifecycle() bool {
	return q.isWrite() && !q.isEvent() && q.ObjectRef.Subresource != "status"
}

// what names the kind of request, such as "patch machines".
func (q request) what() string {
	s := q.Verb + " " + q.ObjectRef.Resource
	if q.ObjectRef.Subresource != "" {
		s += "/" + q.ObjectRef.Subresource
	}
	return s
}

// outcome is what, and the status code of a refusal.
func (q request) outcome() string {
	if q.accepted() {
		return q.what()
	}
	return fmt.Sprintf("%s (%d)", q.what(), q.ResponseStatus.Code)
}
