// SPDX-License-Identifier: Apache-2.0

package plane

import "syscall"

// childAttributes makes the kernel kill a child when its parent ends. A signal from the terminal does not reach the
// child, so that Stop can end processes in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
