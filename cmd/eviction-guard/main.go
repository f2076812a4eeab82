// SPDX-License-Identifier: Apache-2.0

// Command eviction-guard runs in a workload cluster. Its webhook handles evictions of pods that an operator moves.
package main

import (
	"context"
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
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "eviction-guard: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := &guard.Flags{}
	f.Version = version
	if err := f.FlagSet("eviction-guard").Parse(args); err != nil {
		return err
	}
	return guard.Run(ctx, f)
}
