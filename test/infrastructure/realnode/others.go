// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package realnode

import (
	"errors"
	"io"
	"os"
)

const readyFile = "ready"

var errLinux = errors.New("real nodes need Linux")

// Warden requires Linux.
func Warden(string, io.Reader) error { return errLinux }

func launch(string, *os.File) (*node, error) { return nil, errLinux }

func lock(string) (*os.File, error) { return nil, errLinux }

func sweep() error { return nil }

func removeAbandoned(string) error { return nil }
