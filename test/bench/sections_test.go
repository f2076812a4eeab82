// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// smallest are sizes that show that a section works, without a useful measurement.
var smallest = options{
	bin: system.DefaultBin(), runs: 1, machines: 2, crowd: 2, deferred: 2, settled: time.Second, fleet: 4, scale: 1,
	targets: 3, rounds: 1, span: 200 * time.Millisecond, processes: 20, pods: 10, memory: 16, seed: 1,
}

// TestEverySectionRuns runs each section in its smallest form.
func TestEverySectionRuns(t *testing.T) {
	system.Long(t)
	if err := quiet(); err != nil {
		t.Fatal(err)
	}
	for _, s := range sections() {
		t.Run(s.name, func(t *testing.T) {
			if s.name != "agent" && s.name != "hold" { // They scan all processes of the machine. The others wait most of the time.
				t.Parallel()
			}
			var out strings.Builder
			o := smallest
			o.only, o.json = []string{s.name}, filepath.Join(t.TempDir(), "figures.json")
			if err := run(t.Context(), o, &out); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if figures, err := os.ReadFile(o.json); err != nil || !strings.Contains(string(figures), `"`+s.name+`"`) {
				t.Errorf("there are no figures of it, %v:\n%s", err, &out)
			}
		})
	}
}
