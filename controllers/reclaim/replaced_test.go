// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestAReplacedObjectStillKnowsItsOwner removes all annotations during the Machine's deletion, like kubectl replace and
// Argo CD's Replace=true. No other object has a person's request, or the request of a deleted Node.
func TestAReplacedObjectStillKnowsItsOwner(t *testing.T) {
	for name, ask := range map[string]func(*fleet){
		"Person": func(f *fleet) { f.askAsPerson() },
		"NodeThatIsGone": func(f *fleet) {
			f.annotate("true")
			f.settle()
			f.release(f.infra())
			f.settle()
			if f.Read(f.node) {
				f.Fatal("the Node is there")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, false)
			ask(f)
			f.settle()
			if f.machine().DeletionTimestamp.IsZero() {
				t.Fatal("not ejected")
			}
			f.Edit(f.sm, func() { f.sm.Annotations = nil })
			f.settle()
			f.Read(f.sm)
			if record, ok := f.sm.ReclaimRequest(); !ok || !strings.Contains(record.Why(), "request was removed") {
				t.Errorf("written down: %t %+v", ok, record)
			}
			f.clusterAPI()
			f.settle()
			f.Read(f.sm)
			if f.sm.ScheduleEnabled() || f.sm.Status.Phase != v1alpha1.PhaseDisabled || f.machine() != nil {
				t.Errorf("it is lent again: %+v", f.sm)
			}
		})
	}
}
