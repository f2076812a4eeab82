// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
)

// benchHold reports why it can measure nothing.
func benchHold(_ context.Context, b *bench) error {
	b.add(missing("hold", errors.New("not measured: only Linux has cgroups")))
	return nil
}
