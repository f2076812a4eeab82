// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NoObject reports whether err says that the object does not exist. An API server also
// answers "not found" for a kind, or a version of it, that it does not serve: that says
// nothing about the object.
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
