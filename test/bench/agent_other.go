// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
)

// benchAgent reports why it can measure nothing.
func benchAgent(_ context.Context, b *bench) error {
	b.add(missing("G1 to G15", errors.New("not measured: only Linux announces processes")))
	return nil
}
