// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// The objects that carry marks.
const (
	OnScheduledMachine = "ScheduledMachine"
	OnMachine          = "Machine"
	OnBootstrap        = "Bootstrap"
	OnInfrastructure   = "Infrastructure"
)

// A Mark is metadata that 5-Spot sets on an object of a running machine. Other writers of the object may remove or
// change it.
type Mark struct {
	// On is the object.
	On string
	// Tamper removes or changes the mark.
	Tamper func(client.Object)
	// Back reports whether 5-Spot has restored the mark; nil if 5-Spot need not restore it.
	Back func(client.Object, *v1alpha1.ScheduledMachine) bool
}

// Marks returns all Marks, by the kind of change.
func Marks() map[string]Mark {
	all := map[string]Mark{
		"FinalizerOff": {OnScheduledMachine, func(o client.Object) { o.SetFinalizers(nil) }, func(o client.Object, _ *v1alpha1.ScheduledMachine) bool {
			return len(o.GetFinalizers()) > 0
		}},
		"ClusterOff": {OnScheduledMachine, disown, func(o client.Object, _ *v1alpha1.ScheduledMachine) bool { return len(o.GetOwnerReferences()) > 0 }},
	}
	for _, on := range []string{OnMachine, OnBootstrap, OnInfrastructure} {
		all[on+"LabelOff"] = Mark{on, label(v1alpha1.ScheduledMachineLabel, ""), labelled}
		all[on+"LabelOfAnother"] = Mark{on, label(v1alpha1.ScheduledMachineLabel, "another"), labelled}
		all[on+"OwnerOff"] = Mark{on, disown, owned}
	}
	all["MachineLabelAndOwnerOff"] = Mark{OnMachine, func(o client.Object) { disown(o); label(v1alpha1.ScheduledMachineLabel, "")(o) }, owned}
	for _, on := range []string{OnBootstrap, OnInfrastructure} {
		all[on+"HashOff"] = Mark{on, Annotation(v1alpha1.SpecHashAnnotation, ""), nil}
		all[on+"HashChanged"] = Mark{on, Annotation(v1alpha1.SpecHashAnnotation, "another"), nil}
	}
	for name, key := range map[string]string{
		"AppliedHash": v1alpha1.AppliedHashAnnotation, "Created": v1alpha1.CreatedAnnotation,
		"PreDrain": v1alpha1.PreDrainHookAnnotation, "PreTerminate": v1alpha1.PreTerminateHookAnnotation,
	} {
		all[name+"Off"] = Mark{OnMachine, Annotation(key, ""), nil}
		all[name+"Changed"] = Mark{OnMachine, Annotation(key, "nonsense"), nil}
	}
	return all
}

// Annotation returns a function that sets an annotation; an empty value removes it.
func Annotation(key, value string) func(client.Object) {
	return set(client.Object.GetAnnotations, client.Object.SetAnnotations, key, value)
}

func label(key, value string) func(client.Object) {
	return set(client.Object.GetLabels, client.Object.SetLabels, key, value)
}

func set(get func(client.Object) map[string]string, put func(client.Object, map[string]string), key, value string) func(client.Object) {
	return func(obj client.Object) {
		m := get(obj)
		if m == nil {
			m = map[string]string{}
		}
		delete(m, key)
		if value != "" {
			m[key] = value
		}
		put(obj, m)
	}
}

func disown(obj client.Object) { obj.SetOwnerReferences(nil) }

func labelled(obj client.Object, sm *v1alpha1.ScheduledMachine) bool {
	return obj.GetLabels()[v1alpha1.ScheduledMachineLabel] == sm.Name
}

func owned(obj client.Object, sm *v1alpha1.ScheduledMachine) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == sm.UID })
}
