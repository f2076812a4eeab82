// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// badInput are inputs that admission rejects, with its messages.
var badInput = map[string]struct {
	mutate func(*v1alpha1.ScheduledMachine)
	says   []string
}{
	"Day": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = []string{"mon", "someday"} },
		[]string{"spec.schedule.daysOfWeek[1]", "someday"},
	},
	"DayInCapitals": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.DaysOfWeek = []string{"Mon"} },
		[]string{"spec.schedule.daysOfWeek[0]", "Mon"},
	},
	"LocalTimezone": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Timezone = "Local" },
		[]string{"spec.schedule.timezone", "IANA"},
	},
	"TooManyDays": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.DaysOfWeek = slices.Repeat([]string{"mon"}, 33)
		},
		[]string{"spec.schedule.daysOfWeek", "32"},
	},
	"TooManyHours": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.HoursOfDay = slices.Repeat([]string{"1"}, 33)
		},
		[]string{"spec.schedule.hoursOfDay", "32"},
	},
	"GracefulShutdownTimeout": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "5 minutes" },
		[]string{"spec.gracefulShutdownTimeout", "5 minutes"},
	},
	"TwoUnits": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeDrainTimeout = "1m30s" },
		[]string{"spec.nodeDrainTimeout", "1m30s"},
	},
	"NegativeTimeout": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeDrainTimeout = "-5m" },
		[]string{"spec.nodeDrainTimeout", "-5m"},
	},
	"BootstrapGroup": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.BootstrapSpec.APIVersion, sm.Spec.BootstrapSpec.Kind = "v1", "Secret"
		},
		[]string{"spec.bootstrapSpec", "bootstrap.cluster.x-k8s.io or k0smotron.io"},
	},
	"SubdomainOfAGroup": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.InfrastructureSpec.APIVersion = "evil.infrastructure.cluster.x-k8s.io/v1"
		},
		[]string{"spec.infrastructureSpec", "infrastructure.cluster.x-k8s.io or k0smotron.io"},
	},
	"GroupOfATemplate": {
		func(sm *v1alpha1.ScheduledMachine) {
			cloned(sm, "desk")
			sm.Spec.BootstrapTemplateRef.APIVersion = "apps/v1"
		},
		[]string{"spec.bootstrapTemplateRef", "bootstrap.cluster.x-k8s.io or k0smotron.io"},
	},
	"PriorityBelow": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Priority = new(int32(-1)) },
		[]string{"spec.priority", "0"},
	},
	"PriorityAbove": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Priority = new(int32(256)) },
		[]string{"spec.priority", "255"},
	},
	"TooManyCommands": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = slices.Repeat([]string{"java"}, 101) },
		[]string{"spec.killIfCommands", "100"},
	},
	"TooLongCommand": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.KillIfCommands = []string{"java", strings.Repeat("x", 257)}
		},
		[]string{"spec.killIfCommands[1]", "256"},
	},
	"EmptyCommand": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{"java", ""} },
		[]string{"spec.killIfCommands[1]"},
	},
	"NoCluster": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ClusterName = "" },
		[]string{"spec.clusterName"},
	},
	"TooLongName": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Name = strings.Repeat("n", 64) },
		[]string{"63"},
	},
	"NoLabelAsCluster": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.ClusterName = "a cluster" },
		[]string{"spec.clusterName"},
	},
}

func TestBadInputIsRefusedAtAdmission(t *testing.T) {
	l := newNamespace(t, "refusal")
	good := l.scheduledMachine("good", infrav1.PlaneMachineSpec{})
	outside(good)
	l.create(good)
	for name, tc := range badInput {
		t.Run(name, func(t *testing.T) {
			sm := l.scheduledMachine(slug(name), infrav1.PlaneMachineSpec{})
			tc.mutate(sm)
			wantRefused(t, shared.Management.Client.Create(timeout(t, patience), sm), tc.says)
			if name == "TooLongName" {
				return // a name cannot be edited
			}
			edited := good.DeepCopy()
			tc.mutate(edited)
			err := shared.Management.Client.Patch(timeout(t, patience), edited, client.MergeFrom(good))
			wantRefused(t, err, tc.says)
		})
	}
	now := good.DeepCopy()
	l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(good), now))
	if now.Generation != good.Generation {
		t.Error("an edit that is refused must leave the object as it was")
	}
}

// wantRefused checks that admission rejected an object with all texts of says.
func wantRefused(t *testing.T, err error, says []string) {
	t.Helper()
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("admission must refuse it as invalid, got %v", err)
		return
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal must say %q: %v", want, err)
		}
	}
}

// TestALoadBalancerWithoutItsFeatureGate: kubectl prints a warning that no controller acts on it.
func TestALoadBalancerWithoutItsFeatureGate(t *testing.T) {
	t.Parallel()
	const manifest = `{apiVersion: exp.5spot.finos.org/v1alpha1, kind: LoadBalancer, metadata: {name: edge, namespace: default}, spec: {clusterName: lab, label: {}}}`
	_, err := shared.Management.KubectlInput(timeout(t, patience), manifest, "apply", "--warnings-as-errors", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "the feature gate NodeDetach is off") {
		t.Errorf("kubectl prints %v", err)
	}
}
