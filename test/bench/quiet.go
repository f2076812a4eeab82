// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// quiet limits the logs of the clients in this process to errors. API servers answer hundreds of requests with a
// warning, for example about a deprecated field, which would hide the figures.
func quiet() error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	klog.SetOutput(io.Discard)
	ctrl.SetLogger(klog.Background())
	return errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "ERROR"))
}
