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

// MaxDepartureRetry is the maximum back-off while a machine is due to leave, or leaves: its departure has a deadline.
const MaxDepartureRetry = 30 * time.Second

// Backoff returns the rate limiter for failed reconciles. All controllers use it, except emergency reclaims, deletion hooks
// and load balancers: a machine or its owner waits for these.
func Backoff() workqueue.TypedRateLimiter[ctrl.Request] { return backoff(maxRetry) }

// DepartureBackoff is Backoff with the limit MaxDepartureRetry.
func DepartureBackoff() workqueue.TypedRateLimiter[ctrl.Request] { return backoff(MaxDepartureRetry) }

func backoff(most time.Duration) workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, most)
}
