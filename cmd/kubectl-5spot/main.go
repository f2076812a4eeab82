// SPDX-License-Identifier: Apache-2.0

// The kubectl-5spot command, which kubectl also runs as "kubectl 5spot", shows
// what scheduled machines do, what comes next and why; it gives them back to their
// owners, and lends them again.
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
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := kubectl.New(kubectl.Options{
		In:      os.Stdin,
		Out:     os.Stdout,
		Err:     os.Stderr,
		Now:     time.Now,
		Version: versionOrBuild(),
	}).ExecuteContext(ctx)
	if err != nil {
		kubectl.Report(os.Stderr, err)
	}
	return kubectl.ExitCode(err)
}

// versionOrBuild falls back to what go install knows.
func versionOrBuild() string {
	if info, ok := debug.ReadBuildInfo(); version == "" && ok {
		return info.Main.Version
	}
	return version
}
