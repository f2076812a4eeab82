// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// mark is the present position in the management cluster's audit log, for writes.
func (l *lab) mark() int {
	l.t.Helper()
	return len(l.audit(shared.Management))
}

// writes returns the manager's writes to the lab's namespace since a mark, in the order of their completion.
func (l *lab) writes(since int) []auditv1.Event {
	l.t.Helper()
	var writes []auditv1.Event
	for _, e := range l.audit(shared.Management)[since:] {
		if e.User.Username == system.ManagerUser && isWrite(e) && e.ObjectRef != nil && e.ObjectRef.Namespace == l.Key.Namespace {
			writes = append(writes, e)
		}
	}
	return writes
}

func (l *lab) audit(c *plane.Cluster) []auditv1.Event {
	l.t.Helper()
	events, err := c.AuditEvents()
	l.must(err)
	return events
}

func isWrite(e auditv1.Event) bool {
	switch e.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return e.Stage == auditv1.StageResponseComplete
	default:
		return false
	}
}

// accepted reports whether a request changed anything.
func accepted(e auditv1.Event) bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code < 300
}

// describe describes a request briefly.
func describe(e auditv1.Event) string {
	s := e.Verb
	if ref := e.ObjectRef; ref != nil {
		resource := ref.Resource
		if ref.Subresource != "" {
			resource += "/" + ref.Subresource
		}
		s += " " + resource + " " + ref.Name
	}
	if e.RequestObject != nil {
		s += " " + string(e.RequestObject.Raw)
	}
	if e.ResponseStatus != nil {
		s += fmt.Sprintf(" (%d)", e.ResponseStatus.Code)
	}
	return s
}

func describeAll(events []auditv1.Event) string {
	lines := make([]string, len(events))
	for i, e := range events {
		lines[i] = describe(e)
	}
	return strings.Join(lines, "\n")
}

// wantNoEviction checks that no client tried to evict a pod.
func (l *lab) wantNoEviction(pod *corev1.Pod) {
	l.t.Helper()
	for _, e := range l.podRequests(pod) {
		if e.ObjectRef.Subresource == "eviction" {
			l.t.Errorf("pod %s must not be evicted: %s", pod.Name, describe(e))
		}
	}
}

// podRequests returns the writes to a pod at the workload cluster.
func (l *lab) podRequests(pod *corev1.Pod) []auditv1.Event {
	l.t.Helper()
	var found []auditv1.Event
	for _, e := range l.audit(workload) {
		if isWrite(e) && e.ObjectRef != nil && e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == pod.Namespace && e.ObjectRef.Name == pod.Name {
			found = append(found, e)
		}
	}
	return found
}
