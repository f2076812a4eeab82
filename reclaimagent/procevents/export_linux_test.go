// SPDX-License-Identifier: Apache-2.0

package procevents

import "golang.org/x/sys/unix"

// Shrink reduces the receive buffer so much that it overflows at once.
func Shrink(c *Conn, bytes int) error {
	return unix.SetsockoptInt(c.sock.(*netlinkSocket).fd, unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
}
