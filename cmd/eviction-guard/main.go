// SPDX-License-Identifier: Apache-2.0

// Command eviction-guard runs in a workload cluster. Its webhook handles evictions of pods that an operator moves.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
)

// version is set by the linker for releases.
var version = "unknown"

func main() {
	f := &guard.Flags{}
	f.Version = version
	err := f.FlagSet("eviction-guard").Parse(os.Args[1:])
	if err == nil {
		err = guard.Run(ctrl.SetupSignalHandler(), f)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "eviction-guard: %v\n", err)
		os.Exit(1)
	}
}
