// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/webhooks"
)

func machine(change func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
	m := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Name: "box"}}
	m.Spec = v1alpha1.ScheduledMachineSpec{
		Schedule:           v1alpha1.Schedule{DaysOfWeek: []string{"mon-fri"}, HoursOfDay: []string{"9-17"}},
		ClusterName:        "lab",
		BootstrapSpec:      v1alpha1.EmbeddedObject{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig"},
		InfrastructureSpec: v1alpha1.EmbeddedObject{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachine"},
	}
	if change != nil {
		change(m)
	}
	return m
}

func badHours(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.HoursOfDay = []string{"9:30"} }

func TestUpdate(t *testing.T) {
	now := metav1.Unix(1, 0)
	cases := map[string]struct {
		reason   string
		old, new *v1alpha1.ScheduledMachine
		want     string
	}{
		"Good":      {"Nothing is wrong.", machine(nil), machine(nil), ""},
		"NewlyBad":  {"A bad value is refused when it is written.", machine(nil), machine(badHours), `spec.schedule.hoursOfDay[0]: Invalid value: "9:30"`},
		"Immutable": {"A machine does not change clusters.", machine(nil), machine(func(m *v1alpha1.ScheduledMachine) { m.Spec.ClusterName = "other" }), "spec.clusterName"},
		"KnownBad": {
			"An emergency reclaim must be able to turn off what was stored before the rule existed.",
			machine(badHours),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.Spec.Schedule.Enabled = new(false) }), "",
		},
		"KnownBadAndWorse": {
			"What is wrong anew is refused all the same.",
			machine(badHours),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.Spec.NodeDrainTimeout = "5d" }), "spec.nodeDrainTimeout",
		},
		"Going": {
			"The removal of the finalizer is an update, and deletion is never refused.",
			machine(nil),
			machine(func(m *v1alpha1.ScheduledMachine) { badHours(m); m.DeletionTimestamp = &now }), "",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := (&webhooks.ScheduledMachine{}).ValidateUpdate(t.Context(), tc.old, tc.new)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s\nrefused: %v", tc.reason, err)
			case tc.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\ngot %v, want %s", tc.reason, err, tc.want)
			}
		})
	}
}

func TestCreateWarnsOfAScheduleThatIsNeverActive(t *testing.T) {
	m := machine(func(m *v1alpha1.ScheduledMachine) { m.Spec.Schedule.DaysOfWeek = nil })
	warnings, err := (&webhooks.ScheduledMachine{}).ValidateCreate(t.Context(), m)
	if err != nil || len(warnings) != 1 {
		t.Errorf("got %q, %v, want one warning", warnings, err)
	}
}

func TestDeleteIsNeverRefused(t *testing.T) {
	if _, err := (&webhooks.ScheduledMachine{}).ValidateDelete(t.Context(), machine(badHours)); err != nil {
		t.Error(err)
	}
}
