// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

// newVersion also prints the version of the time zone database: it is the usual cause if two programs compute different
// windows.
func newVersion(o Options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of its time zones",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return write(o.Out, fmt.Sprintf("kubectl-5spot %s\n%s %s/%s\ntime zones %s\n",
				o.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, schedule.ZoneDatabase))
		},
	}
}
