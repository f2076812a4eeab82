// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"
)

// explain prints, after a failure, what a person would look at first.
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
	var ours []string
	for _, line := range strings.Split(shared.Manager.LogTail(2000), "\n") {
		if strings.Contains(line, l.Key.Namespace) || strings.Contains(line, "panic") {
			ours = append(ours, line)
		}
	}
	l.t.Logf("log of the manager:\n%s", strings.Join(ours[max(0, len(ours)-60):], "\n"))
}
