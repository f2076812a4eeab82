// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestLateDeparturesAreCountedByCluster covers a running machine, a departure within its budget of 5 minutes, and one
// past it.
func TestLateDeparturesAreCountedByCluster(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)
	var objects []client.Object
	for name, left := range map[string]time.Duration{"runs": 0, "leaves": 4 * time.Minute, "late": 5*time.Minute + time.Second} {
		sm := testenv.ScheduledMachine("farm", name)
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
			Namespace: "farm", Name: name + "-machine", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: name}, Finalizers: []string{"test/keep"},
		}}
		if left > 0 {
			m.DeletionTimestamp = new(metav1.NewTime(now.Add(-left)))
		}
		objects = append(objects, sm, m)
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	for filter, want := range map[string]string{"": `# HELP fivespot_departures_late Machines that still exist after the end of their gracefulShutdownTimeout, by namespace and Cluster. Reported by the leader only.
# TYPE fivespot_departures_late gauge
fivespot_departures_late{cluster="lab",namespace="farm"} 1
`, "another": ""} {
		elected := make(chan struct{})
		close(elected)
		collector := scheduledmachine.Fleet(reader, clocktesting.NewFakePassiveClock(now), filter, elected)
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want), "fivespot_departures_late"); err != nil {
			t.Errorf("watch filter %q: %v", filter, err)
		}
	}
}
