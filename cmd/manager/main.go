// SPDX-License-Identifier: Apache-2.0

// Command manager runs the controllers and webhooks of 5-Spot for Cluster API.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/manager"
)

// version is set by the linker for releases.
var version = "unknown"

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		fmt.Fprintf(os.Stderr, "manager: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := manager.NewOptions()
	o.Version = version
	if err := o.Parse(o.FlagSet("manager"), args); err != nil {
		return err
	}
	return manager.Run(ctx, o)
}
