// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// StartTimeout bounds the start of everything; a busy machine takes a while.
const StartTimeout = 4 * time.Minute

// Main is plane.RunOn with one system for all tests of a binary, which use prepares.
func Main(o Options, use func(context.Context, *System) error, run func() int) int {
	return plane.RunOn(func(ctx context.Context) (plane.Stage, error) {
		s, err := Start(ctx, o)
		if err != nil {
			return nil, err
		}
		if err := use(ctx, s); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		return s, nil
	}, StartTimeout, run)
}

// Long skips tb, which runs in make test-all only, not with -short.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("long: make test-all")
	}
}
