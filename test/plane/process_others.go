// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plane

import "syscall"

// childAttributes returns no attributes. Only Linux can end a child with its parent.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
