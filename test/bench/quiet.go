// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// quiet prints no more than errors of the clients in this process. API servers answer hundreds of
// requests with a warning, such as of a deprecated field, among which the figures get lost.
func quiet() error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(klog.Background())
	return errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "ERROR"))
}
