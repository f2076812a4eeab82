// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

// TestAPauseInstallsNothing covers a Cluster that needs the agent while writes are suppressed. The audit log has all
// suppressed writes of the installation. No failure is reported.
func TestAPauseInstallsNothing(t *testing.T) {
	w, out := newWorld(t, "java"), &bytes.Buffer{}
	gate := &actuate.Gate{DryRun: true, Log: audit.New(out)}
	w.r.Actuate, w.r.ClusterCache = actuate.NewGated(gate, w.client()), testenv.GatedCache(gate.Transport, w.r.ClusterCache)
	w.Writes = nil
	for range 3 {
		if err := w.reconcile(); err != nil {
			t.Error(err)
		}
	}
	if len(w.Writes) > 0 {
		t.Errorf("sent %v", w.Writes)
	}
	if n := strings.Count(out.String(), `"kind":"NodePatch"`); n != 3*len(installs) || n != strings.Count(out.String(), "\n") {
		t.Errorf("told %s", out)
	}
	w.wantInstalled("", "")
	w.restart()
	w.want("after the pause", w.settle(), installs, reports)
}
