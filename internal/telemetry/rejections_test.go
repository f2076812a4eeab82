// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/ingest"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// TestEachRejectionIsReportedOnce checks that a rejection is reported once, and again after it had ended.
func TestEachRejectionIsReportedOnce(t *testing.T) {
	t.Parallel()
	node, id := ingest.Rejection{Reason: ingest.NodeRef, Message: "n"}, ingest.Rejection{Reason: ingest.ProviderID, Message: "i"}
	box, other := client.ObjectKey{Namespace: "farm", Name: "box"}, client.ObjectKey{Namespace: "farm", Name: "other"}
	list := func(r ...ingest.Rejection) []ingest.Rejection { return r }
	var r telemetry.Rejections
	for i, step := range []struct {
		of         client.ObjectKey
		now, fresh []ingest.Rejection
	}{
		{box, nil, nil},
		{box, list(node), list(node)},
		{box, list(node), nil},
		{other, list(node), list(node)},
		{box, list(node, id), list(id)},
		{box, list(id), nil},
		{box, list(node, id), list(node)},
		{box, nil, nil},
		{box, list(node), list(node)},
	} {
		if diff := cmp.Diff(len(step.fresh), len(r.ReportNew(t.Context(), step.of, step.now))); diff != "" {
			t.Errorf("step %d: -want, +got:\n%s", i, diff)
		}
	}
	r.Forget(box)
	if len(r.ReportNew(t.Context(), box, list(node))) != 1 {
		t.Error("what is forgotten is still known")
	}
}
