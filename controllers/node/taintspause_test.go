// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPauseChangesNoTaint covers a desired taint while writes are suppressed.
func TestAPauseChangesNoTaint(t *testing.T) {
	w, out := newTaintWorld(t, v1alpha1.NodeTaint{Key: "example.com/lent", Effect: corev1.TaintEffectNoSchedule}).withNode(true), &bytes.Buffer{}
	r := w.reconciler(clock.RealClock{})
	gate := &actuate.Gate{Paused: true, Log: audit.New(out)}
	r.Actuate, r.ClusterCache = actuate.NewGated(gate, w.client()), testenv.GatedCache(gate.Transport, r.ClusterCache)
	w.Writes = nil
	for range 3 {
		if res, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.sm)}); err != nil || res.RequeueAfter > 0 {
			t.Errorf("it is tried again: %v, %v", res, err)
		}
		w.setReady(true)
		w.Edit(w.node, func() { w.node.Labels = map[string]string{"example.com/beat": w.node.ResourceVersion} })
	}
	if w.Read(w.node); len(w.Writes) > 0 || len(w.node.Spec.Taints) > 0 {
		t.Errorf("sent %v", w.Writes)
	}
	if text := out.String(); strings.Count(text, "\n") != strings.Count(text, `"outcome":"suppressed"`) || !strings.Contains(text, `"kind":"NodePatch"`) || !strings.Contains(text, `"uid":"`+string(w.node.UID)) {
		t.Errorf("told %s", text)
	}
	w.settle()
	if len(w.node.Spec.Taints) != 1 {
		t.Errorf("after the pause: %v", w.node.Spec.Taints)
	}
}
