// SPDX-License-Identifier: Apache-2.0

// Package validation validates ScheduledMachines without access to a cluster. It repeats the checks of the CRD's
// schema, because it also validates topology variables and objects that are older than a rule.
package validation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/machineschedule"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/nodetaints"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/schedule"
)

const (
	// maxNameLength is the limit of a label value, because the name becomes one.
	maxNameLength = validation.LabelValueMaxLength
	maxPatterns   = 100
	maxPattern    = 256
	maxPriority   = 255
	maxTaints     = 32
)

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// ScheduledMachine returns all errors of m in the order of the fields, nil if it is valid.
func ScheduledMachine(m *v1alpha1.ScheduledMachine) field.ErrorList {
	var errs field.ErrorList
	if len(m.Name) > maxNameLength {
		errs = append(errs, field.TooLong(field.NewPath("metadata", "name"), m.Name, maxNameLength))
	}
	return append(errs, Spec(&m.Spec, field.NewPath("spec"))...)
}

// Spec returns all errors of a spec at path, nil if it is valid.
func Spec(s *v1alpha1.ScheduledMachineSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		scheduleErrors(&s.Schedule, path.Child("schedule")),
		clusterName(s.ClusterName, path.Child("clusterName")),
		bootstrap.validate(s.BootstrapSpec, s.BootstrapTemplateRef, path),
		infrastructure.validate(s.InfrastructureSpec, s.InfrastructureTemplateRef, path),
		metadata(s.MachineTemplate, path.Child("machineTemplate")),
		priority(s.Priority, path.Child("priority")),
		duration(s.GracefulShutdownTimeout, path.Child("gracefulShutdownTimeout")),
		duration(s.NodeDrainTimeout, path.Child("nodeDrainTimeout")),
		patterns(s.KillIfCommands, path.Child("killIfCommands")),
		hold(s.ReclaimHold, path.Child("reclaimHold")),
		nodeTaints(s.NodeTaints, path.Child("nodeTaints")),
	)
}

// scheduleErrors also validates a disabled schedule, so that enabling it later does not fail.
func scheduleErrors(s *v1alpha1.Schedule, path *field.Path) field.ErrorList {
	_, err := schedule.Parse(machineschedule.Spec(s))
	var errs field.ErrorList
	for _, bad := range schedule.FieldErrors(err) {
		errs = append(errs, field.Invalid(path.Child(bad.Field), bad.Value, bad.Detail()))
	}
	return errs
}

// invalid returns an error for each message of a check of Kubernetes. A valid value has no message.
func invalid(path *field.Path, value string, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range messages {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

func clusterName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name a Cluster in the same namespace")}
	}
	return invalid(path, name, validation.IsValidLabelValue(name))
}

func priority(p *int32, path *field.Path) field.ErrorList {
	if p == nil || *p >= 0 && *p <= maxPriority {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *p, fmt.Sprintf("must be between 0 and %d; higher is more important", maxPriority))}
}

// hold accepts the empty string, which means the API's default.
func hold(h reclaim.Hold, path *field.Path) field.ErrorList {
	if h == "" || h == reclaim.HoldNone || h.Enabled() {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, h, []reclaim.Hold{reclaim.HoldNone, reclaim.HoldFreeze, reclaim.HoldFreezeOnly, reclaim.HoldKill})}
}

// duration accepts the empty string, which means the API's default.
func duration(s string, path *field.Path) field.ErrorList {
	if s == "" {
		return nil
	}
	if _, err := schedule.ParseDuration(s); err != nil {
		return field.ErrorList{field.Invalid(path, s, err.Error())}
	}
	return nil
}

func patterns(list []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxPatterns {
		errs = append(errs, field.TooMany(path, len(list), maxPatterns))
	}
	for i, p := range list {
		switch {
		case p == "":
			errs = append(errs, field.Invalid(path.Index(i), p, "must not be empty: an empty pattern would match every process"))
		case len([]rune(p)) > maxPattern:
			errs = append(errs, field.TooLong(path.Index(i), p, maxPattern))
		}
	}
	return errs
}

func nodeTaints(list []v1alpha1.NodeTaint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) > maxTaints {
		errs = append(errs, field.TooMany(path, len(list), maxTaints))
	}
	seen := map[v1alpha1.NodeTaint]bool{} // Key and effect identify a taint.
	for i, t := range list {
		at, id := path.Index(i), v1alpha1.NodeTaint{Key: t.Key, Effect: t.Effect}
		errs = append(errs, taintKey(t.Key, at.Child("key"))...)
		errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		if !slices.Contains(taintEffects, t.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, taintEffects))
		}
		if seen[id] {
			errs = append(errs, field.Duplicate(at, t.Key+":"+string(t.Effect)))
		}
		seen[id] = true
	}
	return errs
}

// taintKey is stricter than Kubernetes: the name must not have '_', and each label of the domain must be a valid DNS
// label.
func taintKey(key string, path *field.Path) field.ErrorList {
	errs := invalid(path, key, validation.IsQualifiedName(key))
	if len(errs) > 0 {
		return errs
	}
	if strings.Contains(key, "_") {
		errs = append(errs, field.Invalid(path, key, "must not contain '_': use '-'"))
	}
	if domain, _, ok := strings.Cut(key, "/"); ok {
		for label := range strings.SplitSeq(domain, ".") {
			for _, msg := range validation.IsDNS1123Label(label) {
				errs = append(errs, field.Invalid(path, key, "domain: "+msg))
			}
		}
	}
	if prefix := nodetaints.Reserved(key); prefix != "" {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("keys that begin with %s are reserved; use another domain", prefix)))
	}
	return errs
}
