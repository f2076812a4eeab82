// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import (
	"fmt"
	"os"
)

// Open returns the processes below path, which must have the layout of Linux's /proc.
func Open(path string) (*Table, error) {
	if _, err := os.ReadDir(path); err != nil {
		return nil, fmt.Errorf("opening proc root: %w", err)
	}
	return FromFS(os.DirFS(path), 0), nil
}
