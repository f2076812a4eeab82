// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NoObject reports whether err means that the object does not exist. It excludes a 404 for a kind or version that the
// API server does not serve, because that is no evidence about the object.
func NoObject(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNoObject returns nil for an error that NoObject reports.
func IgnoreNoObject(err error) error {
	if NoObject(err) {
		return nil
	}
	return err
}
