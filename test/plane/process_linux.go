// SPDX-License-Identifier: Apache-2.0

package plane

import "syscall"

// childAttributes ties a child to us: it dies with us, and a signal from the
// terminal goes to us alone, so that we end it in order.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
