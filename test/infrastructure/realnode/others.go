// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package realnode

import (
	"errors"
	"io"
)

const readyFile = "ready"

var errLinux = errors.New("real nodes need Linux")

// Warden needs Linux.
func Warden(string, io.Reader) error { return errLinux }

func launch(string) (*node, error) { return nil, errLinux }
