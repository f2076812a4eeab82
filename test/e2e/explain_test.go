// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// explain prints the relevant state after a failure.
func (l *lab) explain() {
	if !l.t.Failed() {
		return
	}
	// The test's own context has ended.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, args := range [][]string{
		{"get", "scheduledmachines", "-o", "yaml"},
		{"get", "machines,planemachines,planeconfigs,clusters", "-o", "wide"},
		{"get", "machines", "-o", "yaml"},
		{"get", "events", "--sort-by=.metadata.creationTimestamp"},
	} {
		out, err := shared.Management.Kubectl(ctx, append(args, "-n", l.Key.Namespace)...)
		if err != nil {
			out += err.Error()
		}
		l.t.Logf("kubectl %s:\n%s", strings.Join(args, " "), out)
	}
	l.explainDeletions()
	var ours []string
	for line := range strings.SplitSeq(shared.Manager.LogTail(2000), "\n") {
		if strings.Contains(line, l.Key.Namespace) || strings.Contains(line, "panic") {
			ours = append(ours, line)
		}
	}
	l.t.Logf("log of the manager:\n%s", strings.Join(ours[max(0, len(ours)-60):], "\n"))
}

// explainDeletions prints all deletions and removals of finalizers, with their users.
func (l *lab) explainDeletions() {
	events, err := shared.Management.AuditEvents()
	if err != nil {
		l.t.Log(err)
		return
	}
	var lines []string
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Namespace != l.Key.Namespace || !isWrite(e) {
			continue
		}
		if e.Verb == "delete" || strings.Contains(body(e), "inalizers") {
			lines = append(lines, fmt.Sprintf("%s %s: %.300s", e.RequestReceivedTimestamp.Format("15:04:05.000"), e.User.Username, describe(e)))
		}
	}
	l.t.Logf("deletions:\n%s", strings.Join(lines, "\n"))
}
