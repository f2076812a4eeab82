// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/variable"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/topologymutation"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/controlplane/v1beta1"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// class is the name of the ClusterClass, and of all templates, of a lab.
const class = "desks"

// newTopology creates a ClusterClass that declares the variable, and a Cluster of it.
func (l *lab) newTopology(machines ...variable.Machine) *clusterv1.Cluster {
	l.t.Helper()
	meta := metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: class}
	secret, err := workload.KubeconfigSecret(l.Key)
	l.must(err)
	endpoint, err := workload.Endpoint()
	l.must(err)
	l.create(secret)
	l.newTemplates(class, "")
	l.create(&infrav1.PlaneClusterTemplate{ObjectMeta: meta, Spec: infrav1.PlaneClusterTemplateSpec{
		Template: infrav1.PlaneClusterTemplateResource{Spec: infrav1.PlaneClusterSpec{ControlPlaneEndpoint: endpoint, NodeLeaseSeconds: 400}},
	}})
	l.create(&controlplanev1.PlaneControlPlaneTemplate{ObjectMeta: meta})
	l.create(&clusterv1.ClusterClass{ObjectMeta: meta, Spec: clusterv1.ClusterClassSpec{
		Infrastructure: clusterv1.InfrastructureClass{TemplateRef: clusterv1.ClusterClassTemplateReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "PlaneClusterTemplate", Name: class,
		}},
		ControlPlane: clusterv1.ControlPlaneClass{TemplateRef: clusterv1.ClusterClassTemplateReference{
			APIVersion: controlplanev1.GroupVersion.String(), Kind: "PlaneControlPlaneTemplate", Name: class,
		}},
		Variables: []clusterv1.ClusterClassVariable{topologymutation.Variable()},
	}})
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name}}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: class}, Version: "v1.36.3", Variables: variablesOf(machines)}
	l.create(cluster)
	return cluster
}

func variablesOf(machines []variable.Machine) []clusterv1.ClusterVariable {
	raw, err := json.Marshal(machines)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return []clusterv1.ClusterVariable{{Name: variable.Name, Value: apiextensionsv1.JSON{Raw: raw}}}
}

// lent is an item of the variable with these hours of every day.
func lent(name string, hours ...string) variable.Machine {
	sm := &v1alpha1.ScheduledMachine{}
	cloned(sm, class)
	return variable.Machine{
		Name: name, Schedule: variable.Schedule{DaysOfWeek: []string{"mon-sun"}, HoursOfDay: hours},
		BootstrapTemplateRef: sm.Spec.BootstrapTemplateRef, InfrastructureTemplateRef: sm.Spec.InfrastructureTemplateRef,
	}
}

// setMachines changes the variable.
func (l *lab) setMachines(cluster *clusterv1.Cluster, machines ...variable.Machine) {
	l.t.Helper()
	l.edit(cluster, func() { cluster.Spec.Topology.Variables = variablesOf(machines) })
}

// waitApplied waits until the Cluster's condition reports that.
func (l *lab) waitApplied(cluster *clusterv1.Cluster, reason, says string) {
	l.t.Helper()
	l.waitFor(cluster, func() error {
		for _, c := range cluster.Status.Conditions {
			if c.Type == v1alpha1.ScheduledMachinesAppliedCondition {
				if c.Reason == reason && strings.Contains(c.Message, says) {
					return nil
				}
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		return fmt.Errorf("it has no condition %s", v1alpha1.ScheduledMachinesAppliedCondition)
	})
}

// lentMachine is the ScheduledMachine of an item, not read yet.
func (l *lab) lentMachine(name string) *v1alpha1.ScheduledMachine {
	return &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: l.Key.Name + "-" + name}}
}

func TestTopologyLendsMachines(t *testing.T) {
	t.Parallel()
	l := newNamespace(t, "topology")
	always, never := lent("day", "0-23"), lent("night")
	cluster := l.newTopology(always, never)
	l.waitApplied(cluster, v1alpha1.VariableAppliedReason, "the 2 ScheduledMachines")
	day, night := l.lentMachine("day"), l.lentMachine("night")
	l.waitPhase(day, active, metav1.ConditionTrue)
	l.wantRunning(day)
	l.waitPhase(night, inactive, metav1.ConditionTrue)

	before := day.Generation
	never.Priority = new(int32(7))
	l.setMachines(cluster, always, never)
	l.waitFor(night, func() error {
		if *night.Spec.Priority != 7 {
			return fmt.Errorf("its priority is %d", *night.Spec.Priority)
		}
		return nil
	})

	// An owner takes a machine back; the topology must not lend it again.
	l.askBack(l.node(day), "java")
	l.wantReclaimed(day, "java")
	if day.Generation != before+1 {
		t.Errorf("nobody but the owner's request may have changed the other machine: generation %d, then %d", before, day.Generation)
	}
	always.NodeDrainTimeout = "1m"
	dusk := lent("dusk")
	l.setMachines(cluster, always, dusk)
	l.waitGone(night)
	l.waitApplied(cluster, v1alpha1.VariableAppliedReason, "the 2 ScheduledMachines")
	l.waitPhase(l.lentMachine("dusk"), inactive, metav1.ConditionTrue)
	l.waitPhase(day, disabled, metav1.ConditionTrue)
	if day.ScheduleEnabled() || day.Spec.NodeDrainTimeout != "1m" {
		t.Errorf("the schedule must stay off, and the rest must be as it is asked for: %+v", day.Spec)
	}

	dusk.Schedule.HoursOfDay = []string{"9-24"}
	l.setMachines(cluster, dusk)
	l.waitApplied(cluster, v1alpha1.VariableInvalidReason, "scheduledMachines[0].schedule.hoursOfDay[0]")
	l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(day), day))
	if !day.DeletionTimestamp.IsZero() {
		t.Error("a list that is wrong in one place must take nothing away")
	}
	dusk.InfrastructureTemplateRef.Kind = "PlaneMachine"
	err := l.tryEdit(cluster, func() { cluster.Spec.Topology.Variables = variablesOf([]variable.Machine{dusk}) })
	wantRefused(t, err, []string{"infrastructureTemplateRef.kind"})

	l.edit(cluster, func() { cluster.Spec.Topology.Variables = nil })
	l.waitGone(day, l.lentMachine("dusk"))
	l.nothingLeft(day)
}
