// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/scheduledmachine"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPersonsRequestStaysTheSameWhenItIsCounted writes the record like package reclaim. Other ScheduledMachines of the
// host must not treat it as a new request.
func TestAPersonsRequestStaysTheSameWhenItIsCounted(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)
	sm := testenv.ScheduledMachine("farm", "box")
	request := v1alpha1.PersonsRequest("n1", "", at)
	write := func(r v1alpha1.ReclaimRecord) string {
		metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, r.String())
		return scheduledmachine.RequestDigest(sm)
	}
	written := write(request)
	sm.SetReclaimTimes([]time.Time{at})
	if counted := write(request.Seen(at)); written == "" || counted != written {
		t.Errorf("%q became %q", written, counted)
	}
	if later := write(v1alpha1.PersonsRequest("n1", "", at.Add(time.Minute))); later == written {
		t.Error("a later request is the same")
	}
}
