// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package plane

import "syscall"

// childAttributes cannot tie a child's life to ours outside Linux.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
