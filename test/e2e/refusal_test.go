// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"Hour": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.HoursOfDay = []string{"9-24"} },
		[]string{"spec.schedule.hoursOfDay[0]", "9-24"},
	},
	"HourOfADisabledSchedule": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.Schedule.HoursOfDay, sm.Spec.Schedule.Enabled = []string{"nine"}, new(false)
		},
		[]string{"spec.schedule.hoursOfDay[0]", "nine"},
	},
	"UnknownTimezone": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.Schedule.Timezone = "Europe/Atlantis" },
		[]string{"spec.schedule.timezone", "Europe/Atlantis"},
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
	"TooLongTimeout": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.GracefulShutdownTimeout = "25h" },
		[]string{"spec.gracefulShutdownTimeout", "25h"},
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
	"InfrastructureGroup": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.APIVersion = "apps/v1" },
		[]string{"spec.infrastructureSpec", "infrastructure.cluster.x-k8s.io or k0smotron.io"},
	},
	"SubdomainOfAGroup": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.InfrastructureSpec.APIVersion = "evil.infrastructure.cluster.x-k8s.io/v1"
		},
		[]string{"spec.infrastructureSpec", "infrastructure.cluster.x-k8s.io or k0smotron.io"},
	},
	"EmptyKind": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec.Kind = "" },
		[]string{"spec.bootstrapSpec.kind"},
	},
	"KindOfAnIdentity": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "PlaneClusterIdentity" },
		[]string{"spec.infrastructureSpec.kind", "PlaneClusterIdentity", "ends in Machine"},
	},
	"KindInLowerCase": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureSpec.Kind = "planemachine" },
		[]string{"spec.infrastructureSpec.kind", "begins with a capital"},
	},
	"KindOfAList": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec.Kind = "List" },
		[]string{"spec.bootstrapSpec.kind", "List", "ends in Config"},
	},
	"NeitherSpecNorTemplate": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{} },
		[]string{"spec.bootstrapSpec: Required value", "bootstrapTemplateRef"},
	},
	"SpecAndTemplate": {
		func(sm *v1alpha1.ScheduledMachine) { sm.Spec.InfrastructureTemplateRef = machineTemplate("desk") },
		[]string{"spec.infrastructureTemplateRef: Forbidden", "infrastructureSpec"},
	},
	"NoKindOfATemplate": {
		func(sm *v1alpha1.ScheduledMachine) {
			cloned(sm, "desk")
			sm.Spec.InfrastructureTemplateRef.Kind = "PlaneMachine"
		},
		[]string{"spec.infrastructureTemplateRef.kind", "must be the kind of a template"},
	},
	"GroupOfATemplate": {
		func(sm *v1alpha1.ScheduledMachine) {
			cloned(sm, "desk")
			sm.Spec.BootstrapTemplateRef.APIVersion = "apps/v1"
		},
		[]string{"spec.bootstrapTemplateRef", "bootstrap.cluster.x-k8s.io or k0smotron.io"},
	},
	"NoNameOfATemplate": {
		func(sm *v1alpha1.ScheduledMachine) { cloned(sm, "No Name") },
		[]string{"spec.infrastructureTemplateRef.name", "No Name"},
	},
	"ReservedLabel": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.MachineTemplate.Labels = map[string]string{"cluster.x-k8s.io/cluster-name": "other"}
		},
		[]string{"spec.machineTemplate.labels", "reserved"},
	},
	"ReservedAnnotation": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.MachineTemplate.Annotations = map[string]string{"5spot.finos.org/x": "y"}
		},
		[]string{"spec.machineTemplate.annotations", "reserved"},
	},
	"RoleOfTheNode": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.MachineTemplate.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		},
		[]string{"spec.machineTemplate.labels", "node-role.kubernetes.io/", "reserved"},
	},
	"DeletionHook": {
		func(sm *v1alpha1.ScheduledMachine) {
			sm.Spec.MachineTemplate.Annotations = map[string]string{"pre-terminate.delete.hook.machine.cluster.x-k8s.io/mine": "me"}
		},
		[]string{"spec.machineTemplate.annotations", "delete.hook.machine.cluster.x-k8s.io", "reserved"},
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

func TestClusterNameIsImmutable(t *testing.T) {
	l := newNamespace(t, "immutable")
	sm := l.started("box", outside)
	err := l.tryEdit(sm, func() { sm.Spec.ClusterName = "other" })
	wantRefused(t, err, []string{"spec.clusterName", "immutable"})
}

func TestKubectlShowsPlacesOfErrorsAndAllColumns(t *testing.T) {
	l := newNamespace(t, "kubectl")
	manifest := `
apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata: {name: kubectl-box, namespace: kubectl}
spec:
  clusterName: kubectl
  schedule: {daysOfWeek: [mon-sun], hoursOfDay: ["9-17"], timezone: Mars/Olympus}
  bootstrapSpec: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: PlaneConfig, spec: {}}
  infrastructureSpec: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: PlaneMachine, spec: {}}
`
	_, err := shared.Management.KubectlInput(timeout(t, patience), manifest, "apply", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "spec.schedule.timezone") || !strings.Contains(err.Error(), "Mars/Olympus") {
		t.Errorf("kubectl must say where and what is wrong: %v", err)
	}
	_, err = shared.Management.KubectlInput(timeout(t, patience), strings.Replace(manifest, "Mars/Olympus", "Europe/Zurich", 1), "apply", "-f", "-")
	l.must(err)
	sm := l.scheduledMachine("box", infrav1.PlaneMachineSpec{})
	l.waitFor(sm, func() error { return phaseIs(sm, pending, inactive) })
	out, err := shared.Management.Kubectl(timeout(t, patience), "get", "sm", "-n", "kubectl", "-o", "wide")
	l.must(err)
	for _, column := range []string{"CLUSTER", "PHASE", "READY", "INSCHEDULE", "ENABLED", "PAUSED", "NODE", "NEXT", "AGE", "DAYS", "HOURS", "TZ", "KILLSWITCH", "Europe/Zurich"} {
		if !strings.Contains(out, column) {
			t.Errorf("kubectl get sm -o wide must show %s:\n%s", column, out)
		}
	}
	l.waitCondition(sm, v1alpha1.ReferencesValidCondition, metav1.ConditionFalse, "ReferencesInvalid", "spec.clusterName", "kubectl")
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
