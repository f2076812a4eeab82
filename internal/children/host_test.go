// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
)

// TestKnownHostIsOfOneMachine checks that the status applies only to the Machine with the recorded UID.
func TestKnownHostIsOfOneMachine(t *testing.T) {
	made := metav1.NewTime(time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC))
	accepted := ingest.Host{Node: "n1", ProviderID: "lab://1", MachineID: "m1"}
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.ScheduledMachine, *clusterv1.Machine)
		want   ingest.Host
	}{
		"Same": {"It was accepted for this one.", func(*v1alpha1.ScheduledMachine, *clusterv1.Machine) {}, accepted},
		"OfAnotherTime": {"Any client can write when it was made.", func(_ *v1alpha1.ScheduledMachine, m *clusterv1.Machine) {
			m.Annotations = map[string]string{v1alpha1.CreatedAnnotation: "2020-03-02T12:00:00Z"}
		}, accepted},
		"MadeAnew":     {"One of the same name and age is another.", func(_ *v1alpha1.ScheduledMachine, m *clusterv1.Machine) { m.UID = "2" }, ingest.Host{}},
		"NothingKnown": {"Nothing was reported yet.", func(sm *v1alpha1.ScheduledMachine, _ *clusterv1.Machine) { sm.Status.MachineRef = nil }, ingest.Host{}},
		"NoNode": {"Its Node was not known.", func(sm *v1alpha1.ScheduledMachine, _ *clusterv1.Machine) { sm.Status.NodeRef = nil }, ingest.Host{
			ProviderID: "lab://1",
		}},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "box-machine", UID: "1", CreationTimestamp: made}}
		sm := &v1alpha1.ScheduledMachine{Status: v1alpha1.ScheduledMachineStatus{
			MachineRef: &v1alpha1.ChildReference{Name: m.Name, UID: m.UID}, LastScheduledTime: &made,
			NodeRef: &v1alpha1.NodeReference{Name: "n1", MachineID: "m1"}, ProviderID: "lab://1",
		}}
		tc.change(sm, m)
		if diff := cmp.Diff(tc.want, children.Known(sm, m)); diff != "" {
			t.Errorf("%s: %s\n-want, +got:\n%s", name, tc.reason, diff)
		}
	}
	if known := children.Known(&v1alpha1.ScheduledMachine{}, nil); known != (ingest.Host{}) {
		t.Errorf("Without a Machine nothing is known: %+v", known)
	}
}
