// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"golang.org/x/sys/unix"
)

func monotonic() time.Duration { return read(unix.CLOCK_MONOTONIC) }

// cpu is the CPU time of this process.
func cpu() time.Duration { return read(unix.CLOCK_PROCESS_CPUTIME_ID) }

func read(clock int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts)
	return time.Duration(ts.Nano())
}
