// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

func TestConnectionsAreNotWrittenEachSecond(t *testing.T) {
	says := func(phase expv1.AttachmentPhase, connections int64, message string) *expv1.NodeAttachment {
		return &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{UID: "a"}, Status: expv1.NodeAttachmentStatus{
			Conditions: []metav1.Condition{{Type: expv1.NodeBeingDetachedCondition, Message: message}},
			LoadBalancers: []expv1.BalancerProgress{{
				Name: "edge", Phase: phase, Message: message, Members: []expv1.MembershipStatus{{Connections: &connections}},
			}},
		}}
	}
	var p statusThrottle
	edge, other := types.NamespacedName{Name: "edge"}, types.NamespacedName{Name: "other"}
	begin := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	last := &expv1.NodeAttachment{ObjectMeta: metav1.ObjectMeta{UID: "a"}}
	for _, step := range []struct {
		name string
		at   int
		lb   types.NamespacedName
		now  *expv1.NodeAttachment
		want bool
	}{
		{"first", 0, edge, says(expv1.PhaseDraining, 30, "30"), true},
		{"nothing new", 1, edge, says(expv1.PhaseDraining, 30, "30"), false},
		{"a connection less", 2, edge, says(expv1.PhaseDraining, 29, "29"), false},
		{"at another load balancer", 2, other, says(expv1.PhaseDraining, 29, "29"), true},
		{"one less again", 9, edge, says(expv1.PhaseDraining, 28, "28"), false},
		{"after a while", 10, edge, says(expv1.PhaseDraining, 27, "27"), true},
		{"done", 11, edge, says(expv1.PhaseDetached, 0, ""), true},
		{"a clock that was ahead", -5, edge, says(expv1.PhaseDetached, 1, "1"), true},
	} {
		got := p.due(step.lb, last, step.now, begin.Add(time.Duration(step.at)*time.Second))
		if got != step.want {
			t.Errorf("%s: %t, want %t", step.name, got, step.want)
		}
		if got && step.lb == edge {
			last = step.now
		}
	}
}
