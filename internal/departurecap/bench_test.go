// SPDX-License-Identifier: Apache-2.0

package departurecap_test

import (
	"fmt"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		for _, lane := range []departurecap.Lane{departurecap.Scheduled, departurecap.Unscheduled} {
			b.Run(fmt.Sprintf("%s/%d", lane, n), func(b *testing.B) {
				b.ReportAllocs()
				f := leaving(n, lane).Fleet
				for i := range f.Candidates { // in no order that the plan could keep
					f.Candidates[i].Priority = int32(i * 7919 % 256)
				}
				for b.Loop() {
					departurecap.Decide(f, oneInTwenty)
				}
			})
		}
	}
}
