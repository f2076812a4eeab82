// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStopsAt(t *testing.T) {
	t.Parallel()
	deleted := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const grace = 30
	cases := map[string]struct {
		reason string
		stop   string
		after  time.Duration
		never  bool
	}{
		"AtOnce":           {reason: "A pod that says nothing ends with SIGTERM.", stop: "", after: -1},
		"AfterAWhile":      {reason: "A pod may need time.", stop: "5s", after: 5 * time.Second},
		"GraceIsTheLimit":  {reason: "A kubelet kills what outlives its grace period.", stop: "5m", after: grace * time.Second},
		"Never":            {reason: "Nothing ends a process in uninterruptible sleep.", stop: StopNever, never: true},
		"NonsenseIsAtOnce": {reason: "A wrong value must not block a drain by accident.", stop: "soon", after: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := metav1.NewTime(deleted.Add(grace * time.Second))
			at, ends := stopsAt(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{StopAnnotation: tc.stop}, DeletionTimestamp: &end, DeletionGracePeriodSeconds: new(int64(grace)),
			}})
			if ends == tc.never {
				t.Errorf("%s\nends: %t", tc.reason, ends)
			}
			if tc.after >= 0 && !tc.never && !at.Equal(deleted.Add(tc.after)) {
				t.Errorf("%s\nends at %v, want %v", tc.reason, at, deleted.Add(tc.after))
			}
			if tc.after < 0 && at.After(deleted) {
				t.Errorf("%s\nends at %v, want no delay", tc.reason, at)
			}
		})
	}
}
