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
	"api.md":                       apiPage,
	"deletionhooks.md":             hookPage,
	"loadbalancers.md":             balancerPage,
	"nodeattachments.md":           attachmentPage,
	"reschedulepolicies.md":        reschedulePolicyPage,
	"clusterreschedulepolicies.md": clusterReschedulePolicyPage,
	"reschedulerequests.md":        rescheduleRequestPage,
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
