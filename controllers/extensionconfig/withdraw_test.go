// SPDX-License-Identifier: Apache-2.0

package extensionconfig

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStopsForGood(t *testing.T) {
	with := func(replicas *int32, deleting bool) *appsv1.Deployment {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: replicas}}
		if deleting {
			d.DeletionTimestamp = new(metav1.Unix(1, 0))
		}
		return d
	}
	for name, tc := range map[string]struct {
		reason     string
		deployment *appsv1.Deployment
		want       bool
	}{
		"Rollout":  {"The next manager answers.", with(new(int32(2)), false), false},
		"Default":  {"No number is one.", with(nil, false), false},
		"Zero":     {"clusterctl scales to nothing before it upgrades.", with(new(int32(0)), false), true},
		"Deleting": {"It is being removed.", with(new(int32(2)), true), true},
		"Gone":     {"It was removed.", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stopsForGood(tc.deployment); got != tc.want {
				t.Errorf("%s\ngot %t", tc.reason, got)
			}
		})
	}
}
