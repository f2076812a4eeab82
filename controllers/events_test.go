// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestEveryNoteFitsIntoTheAPI checks that a reason of 256 characters of any script does not lose its Event.
func TestEveryNoteFitsIntoTheAPI(t *testing.T) {
	t.Parallel()
	fake := events.NewFakeRecorder(1)
	r := v1alpha1.ReclaimRecord{Node: "n1", Reason: strings.Repeat("\U0001F600", 256)}
	clipped{fake}.Eventf(&v1alpha1.ScheduledMachine{}, nil, corev1.EventTypeWarning, "Reason", "Act", "%s\n%s\x1b", r.Requested(), "100%s")
	got := strings.TrimPrefix(<-fake.Events, "Warning Reason ")
	if len(got) > 1024 || !strings.HasPrefix(got, "Emergency reclaim requested: \U0001F600") || strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	clipped{fake}.Eventf(&v1alpha1.ScheduledMachine{}, nil, corev1.EventTypeNormal, "Reason", "Act", "%s\n%s\x1b", "a", "100%s")
	if got := <-fake.Events; got != "Normal Reason a 100%s" {
		t.Errorf("%q", got)
	}
}
