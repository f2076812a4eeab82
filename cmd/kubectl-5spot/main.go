// SPDX-License-Identifier: Apache-2.0

// Command kubectl-5spot is the kubectl plugin "kubectl 5spot". It shows the state of scheduled machines, the next
// change and its reason. It can give a machine back to its owner, and resume its schedule.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
)

// version is set by the linker for releases.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := kubectl.New(kubectl.Options{
		In:      os.Stdin,
		Out:     os.Stdout,
		Err:     os.Stderr,
		Now:     time.Now,
		Version: versionOrBuild(),
	}).ExecuteContext(ctx)
	stop()
	if err != nil {
		kubectl.Report(os.Stderr, err)
	}
	os.Exit(kubectl.ExitCode(err))
}

// versionOrBuild returns version, or the module version that go install records.
func versionOrBuild() string {
	if info, ok := debug.ReadBuildInfo(); version == "" && ok {
		return info.Main.Version
	}
	return version
}
