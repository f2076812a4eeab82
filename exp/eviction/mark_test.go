// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
)

// TestAPodIsMarkedOnce has another client that marks the pod between our read and our write. The time of its mark
// stays.
func TestAPodIsMarkedOnce(t *testing.T) {
	w, p := newDrain(t, nil)
	since := w.clock.Now().UTC().Format(time.RFC3339Nano)
	w.pass(30 * time.Second)
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == "patch Pod" {
			w.Fail = nil
			w.Edit(p, func() { p.Annotations = map[string]string{moveKey: "please", evictionv1.RequestedAnnotation: since} })
		}
		return nil, nil
	}
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	if !w.isMarked(p) || w.Fail != nil || p.Annotations[evictionv1.RequestedAnnotation] != since {
		t.Errorf("annotations %v, want the mark of %s", p.Annotations, since)
	}
}
