// SPDX-License-Identifier: Apache-2.0

// Command launcher becomes the program that the environment variable TARGET names,
// and prints the nanosecond in which it did. It names it in no argument, because
// arguments are what the agent looks at.
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
