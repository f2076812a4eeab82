// SPDX-License-Identifier: Apache-2.0

// Command reference generates the pages in docs/reference: fields, flags, metrics, conditions, reasons and annotations.
// It reads them where they are declared. A missing description is an error, so that every new name is documented.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// A page renders the text from the sources below root.
type page func(root string) (string, error)

var pages = map[string]page{
	"api.md":                       kindPage("crd/bases/5spot.finos.org_scheduledmachines.yaml", apiIntro),
	"deletionhooks.md":             kindPage("crd/bases/5spot.finos.org_machinedeletionhooks.yaml", hookIntro),
	"loadbalancers.md":             kindPage("crd/bases/exp.5spot.finos.org_loadbalancers.yaml", balancerIntro),
	"nodeattachments.md":           kindPage("crd/bases/exp.5spot.finos.org_nodeattachments.yaml", attachmentIntro),
	"reschedulepolicies.md":        kindPage("eviction-guard/crd/eviction.5spot.finos.org_reschedulepolicies.yaml", policyIntro),
	"clusterreschedulepolicies.md": kindPage("eviction-guard/crd/eviction.5spot.finos.org_clusterreschedulepolicies.yaml", clusterPolicyIntro),
	"reschedulerequests.md":        kindPage("eviction-guard/crd/eviction.5spot.finos.org_reschedulerequests.yaml", requestIntro),
	"flags.md":                     flagsPage,
	"metrics.md":                   metricsPage,
	"reasons.md":                   reasonsPage,
	variableFile:                   variablePage,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: go run ./hack/reference DIR")
	}
	if err := write(".", os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// write renders every page into dir.
func write(root, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pages are world-readable
		return err
	}
	for name, render := range pages {
		text, err := render(root)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // see above
			return err
		}
	}
	return nil
}
