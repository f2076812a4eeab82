// SPDX-License-Identifier: Apache-2.0

// Command pause holds the namespaces of a pod until a signal ends it. The container runtime of real nodes uses it as
// sandbox image, and tests use it as an idle workload.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
