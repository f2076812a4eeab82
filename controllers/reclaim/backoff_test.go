// SPDX-License-Identifier: Apache-2.0

package reclaim_test

import (
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/reclaim"
)

func TestBackoffByUrgency(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		who            reclaim.RetryUrgency
		first, longest time.Duration
	}{
		"Owner": {"An owner who waited for the end of an outage does not also wait for a long back-off.", reclaim.OwnerUrgent, 5 * time.Millisecond, time.Second},
		"Node":  {"Cluster API carries out the remaining steps, too.", reclaim.NodeUrgent, time.Second, 15 * time.Second},
		"None":  {"Machines without a waiting owner leave the workers to others.", reclaim.NotUrgent, time.Second, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var req ctrl.Request
			req.Name = name
			limiter := (&reclaim.Reconciler{}).RateLimiter()
			reclaim.Note(limiter, req, tc.who)
			first, last := limiter.When(req), time.Duration(0)
			for range 20 {
				last = limiter.When(req)
			}
			if first != tc.first || last != tc.longest {
				t.Errorf("%s\ntried again after %v, and %v at most; want %v and %v", tc.reason, first, last, tc.first, tc.longest)
			}
			if limiter.NumRequeues(req) == 0 {
				t.Error("nothing is counted")
			}
			limiter.Forget(req)
			if limiter.NumRequeues(req) != 0 || limiter.When(req) != time.Second {
				t.Error("what succeeded is not forgotten")
			}
		})
	}
}
