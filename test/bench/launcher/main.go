// SPDX-License-Identifier: Apache-2.0

// Command launcher prints the time in nanoseconds, and then executes the program in the environment variable TARGET.
// TARGET is not an argument, because the agent reads arguments.
package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	target := os.Getenv("TARGET")                      //nolint:forbidigo // see above
	fmt.Println(time.Now().UnixNano())                 //nolint:forbidigo // this is what it is for
	err := syscall.Exec(target, []string{target}, nil) //nolint:gosec // this is what it is for
	fmt.Fprintln(os.Stderr, "launcher:", err)
	os.Exit(1) //nolint:forbidigo // this is main
}
