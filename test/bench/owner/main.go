// SPDX-License-Identifier: Apache-2.0

// Command owner is what runs on a machine in the section hold of the benchmark.
//
//	owner cpu START MARK   uses a core for a second, and prints its share of the core
//	owner memory MIB       uses memory until it is killed
//
// START is the instant of its start by CLOCK_MONOTONIC, in nanoseconds. MARK is an argument for the agent.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// The share is measured from 10 ms after the start until a second after it.
const (
	from = 10 * time.Millisecond
	to   = time.Second
)

func main() {
	n, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2) //nolint:forbidigo // this is main
	}
	if os.Args[1] == "memory" {
		use(n << 20)
		return
	}
	start := time.Duration(n)
	spin(start + from)
	began, used := monotonic(), cpu()
	spin(start + to)
	_, _ = fmt.Fprintf(os.Stdout, "share %g\n", (cpu()-used).Seconds()/(monotonic()-began).Seconds())
}

func spin(until time.Duration) {
	for monotonic() < until {
	}
}

// use writes to each page of its memory, and then sleeps.
func use(bytes int64) {
	memory := make([]byte, bytes)
	for i := int64(0); i < bytes; i += 4096 {
		memory[i] = 1
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	time.Sleep(time.Hour) //nolint:forbidigo // until it is killed
	_, _ = fmt.Fprintln(os.Stdout, memory[0])
}
