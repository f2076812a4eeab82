// SPDX-License-Identifier: Apache-2.0

// Command pause holds the namespaces of a pod until a signal ends it. The container runtime of real nodes uses it as
// sandbox image, and tests use it as an idle workload. With the argument "burn" it uses one core.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "burn" {
		go func() {
			for { //nolint:staticcheck // it must use CPU
			}
		}()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
