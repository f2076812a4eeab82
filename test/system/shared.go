// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// StartTimeout bounds the start of everything. A busy machine needs a long time.
const StartTimeout = 4 * time.Minute

// Main is plane.RunOn with one system for all tests of a binary. use prepares it.
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

// Long skips tb with -short. make test-all runs it.
func Long(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("long: make test-all")
	}
}
