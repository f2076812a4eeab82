// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package procevents

import "errors"

// open returns an error: only Linux has a proc connector.
func open(Options) (socket, error) { return nil, unavailable("Linux", errors.ErrUnsupported) }

func silenceReason() string { return "Linux" }
