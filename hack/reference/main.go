// SPDX-License-Identifier: Apache-2.0

// Command reference answers one question: which fields, flags, metrics, conditions,
// reasons and annotations are there? It reads them where they are declared and
// writes a page for each. What has no description is an error, so that nothing
// can be added without one.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
)

// A page is rendered from the repository below root.
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
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pages are for everybody to read
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
