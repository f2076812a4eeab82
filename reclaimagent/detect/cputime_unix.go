// SPDX-License-Identifier: Apache-2.0

//go:build unix

package detect

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that this process has used in user and kernel mode, see getrusage(2). It returns 0 if
// the kernel does not report it.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
