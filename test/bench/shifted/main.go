// SPDX-License-Identifier: Apache-2.0

// Command shifted is the manager with a clock that is off by a fixed amount, so that a window's edge comes when a
// benchmark is ready for it. The clock runs at its real speed. Flags and defaults are the manager's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/manager"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "shifted:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string) error {
	o := manager.NewOptions()
	fs := o.FlagSet("shifted")
	offset := fs.Duration("clock-offset", 0, "Added to the time of the machine.")
	if err := o.Parse(fs, args); err != nil {
		return err
	}
	o.Clock = shifted{*offset}
	return manager.Run(ctx, o)
}

// shifted is the real clock plus offset, which may be negative.
type shifted struct{ offset time.Duration }

// Now implements clock.PassiveClock.
func (s shifted) Now() time.Time { return clock.RealClock{}.Now().Add(s.offset) }

// Since implements clock.PassiveClock.
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
