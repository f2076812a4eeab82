// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestProtectionEndsWithTheNode covers the obsolete condition of package protection. The status write of this
// controller deletes it, without an additional write.
func TestProtectionEndsWithTheNode(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(w *world)
		want   bool
	}{
		"StillThere": {"It is another controller's as long as there is a Node.", func(*world) {}, true},
		"NoPrograms": {"No agent is asked for.", func(w *world) {
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = nil })
		}, false},
		"Gone": {"The machine left.", func(w *world) {
			w.edit(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true })
			w.settle()
			w.gone()
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{"java"} })
			w.running()
			before := w.sm.DeepCopy()
			conditions.Set(w.sm, metav1.Condition{Type: v1alpha1.OwnerProtectedCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.WatchingReason})
			w.Must(w.Client.Status().Patch(t.Context(), w.sm, client.MergeFrom(before)))
			tc.end(w)
			w.settle()
			if got := conditions.Has(w.sm, v1alpha1.OwnerProtectedCondition); got != tc.want {
				t.Errorf("%s\nthe condition is there: %t", tc.reason, got)
			}
		})
	}
}
