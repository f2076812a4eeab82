// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// firstRetry and longestRetry bound the back-off of an object that fails. The
// contract says five minutes at most.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// Backoff returns when an object that fails is tried again, for all controllers
// but the one that an owner waits for.
func Backoff() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, longestRetry)
}
