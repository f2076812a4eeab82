// SPDX-License-Identifier: Apache-2.0

package nodesync_test

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// TestAPauseInstallsNothing covers a Cluster that needs the agent while writes are suppressed. The audit log has all
// suppressed writes of the installation, and the first one for each Node, once. No failure is reported.
func TestAPauseInstallsNothing(t *testing.T) {
	w, out := newWorld(t, "java"), &bytes.Buffer{}
	w.r.Actuate = actuate.NewGated(&actuate.Gate{DryRun: true, Log: audit.New(out)}, w.client())
	w.Writes = nil
	for range 3 {
		if err := w.reconcile(); err != nil {
			t.Error(err)
		}
	}
	if len(w.Writes) > 0 {
		t.Errorf("sent %v", w.Writes)
	}
	if n := strings.Count(out.String(), `"kind":"NodePatch"`); n != len(installs)+1 || n != strings.Count(out.String(), "\n") {
		t.Errorf("told %s", out)
	}
	if o, tried := w.board.Outcome(client.ObjectKeyFromObject(w.cluster)); tried {
		t.Errorf("the outcome is %v", o)
	}
	w.restart()
	w.want("after the pause", w.settle(), installs, optsIn)
}
