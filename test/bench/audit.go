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

// An auditLog reads what an API server recorded since the last look.
type auditLog struct {
	dir    string
	offset int64
}

// A request is what the audit log says of one, as far as it is needed here. Times
// are the API server's, in microseconds.
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

// ours reports whether the manager sent it. In a workload cluster it goes by the
// name of Cluster API.
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

// accepted reports whether it was carried out.
func (q request) accepted() bool { return q.ResponseStatus.Code >= 200 && q.ResponseStatus.Code < 300 }

func (q request) isEvent() bool { return q.ObjectRef.Resource == "events" }

// lifecycle reports whether it is a write to an object that matters: neither an
// Event nor a status.
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

// outcome is what, and the answer if it was a refusal.
func (q request) outcome() string {
	if q.accepted() {
		return q.what()
	}
	return fmt.Sprintf("%s (%d)", q.what(), q.ResponseStatus.Code)
}
