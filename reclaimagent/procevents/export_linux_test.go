// SPDX-License-Identifier: Apache-2.0

package procevents

import "golang.org/x/sys/unix"

// Shrink makes the receive buffer so small that it overflows at once.
func Shrink(c *Conn, bytes int) error {
	s := c.sock.(*netlinkSocket)
	var set error
	err := s.raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	})
	if err != nil {
		return err
	}
	return set
}
