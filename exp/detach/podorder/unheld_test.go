// SPDX-License-Identifier: Apache-2.0

package podorder_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPodsOfAnUnheldNodeAreStopped: in the same order, without unnecessary calls.
func TestPodsOfAnUnheldNodeAreStopped(t *testing.T) {
	w := newWorld(t)
	ds := w.daemonSet("ds", "")
	w.pod("a", ds, priority("10"))
	w.pod("b", ds, priority("5"))
	w.pod("stays", ds, nil)
	w.restart()
	request := types.NamespacedName{Namespace: w.ns, Name: "lab/" + w.node.Name}
	leaves := false // The API server still returns the Node without the cordon.
	turn := func() time.Duration {
		w.clock.SetTime(w.clock.Now().Add(5 * time.Second))
		call := func() time.Duration {
			return w.step.StopWithoutHook(t.Context(), request, w.d, func(*corev1.Node) bool { return leaves }, w.clock.Now())
		}
		again := call()
		select {
		case <-w.woken:
			return call()
		case <-time.After(time.Second):
			return again
		}
	}
	if turn(); len(w.Writes) > 0 {
		t.Errorf("wrote %v", w.Writes)
	}
	leaves = true
	if again := turn(); again != 3*time.Second {
		t.Errorf("it looks again after %v", again)
	}
	w.want("a", "b stays")
	w.kubelet()
	turn()
	w.want("b", "stays")
	w.kubelet()
	turn()
	before := len(w.Writes)
	if again := turn(); again != 0 || len(w.Writes) != before {
		t.Errorf("nothing is left: it looks again after %v, and writes %v", again, w.Writes[before:])
	}
	w.pod("c", ds, priority("1"))
	turn()
	w.want("", "c stays")

	leaves = false // Another party has uncordoned the Node since.
	w.step.ForgetWithoutHook(request)
	before = len(w.Writes)
	if turn(); len(w.Writes) != before {
		t.Errorf("wrote %v", w.Writes[before:])
	}
}

// TestPodWithAnnotationIsDeleted: a pod with the annotation is deleted in spite of a budget.
func TestPodWithAnnotationIsDeleted(t *testing.T) {
	for value, going := range map[string]string{"true": "db", "false": "", "": ""} {
		t.Run(value, func(t *testing.T) {
			w := newWorld(t)
			asks := priority("10")
			asks["node-detacher.variant.run/disable-eviction"] = value
			w.pod("db", nil, asks)
			w.protect("db")
			w.turn()
			if got, _ := w.pods(); got != going {
				t.Errorf("%q is deleted, want %q", got, going)
			}
		})
	}
}
