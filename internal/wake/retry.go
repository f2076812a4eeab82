// SPDX-License-Identifier: Apache-2.0

package wake

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
)

// firstRetry and maxRetry are the limits of the back-off after a failure.
const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Minute
)

// Backoff returns the rate limiter for failed reconciles. All controllers use it except the one for emergency
// reclaims.
func Backoff() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, maxRetry)
}
