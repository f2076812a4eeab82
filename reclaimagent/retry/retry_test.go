// SPDX-License-Identifier: Apache-2.0

package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "first"))
		last := first * time.Duration(rapid.Int64Range(1, 100).Draw(t, "factor"))
		b := retry.Backoff{First: first, Last: last}
		for range rapid.IntRange(1, 3).Draw(t, "rounds") {
			for want := first; want < 2*last; want *= 2 {
				base := min(want, last)
				if got := b.Next(); got < base/2 || got > base/2+base {
					t.Fatalf("Next() = %v, want about %v", got, base)
				}
			}
			b.Reset()
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := retry.Sleep(t.Context(), time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Sleep() = %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := retry.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sleep() = %v, want the error of the context", err)
		}
	})
}
