// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/difference"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// restoreBurst and restoreInterval bound the writes to an object that another program edits, or
// deletes, each time it is restored: the burst, then one per interval.
const (
	restoreBurst    = 5
	restoreInterval = 5 * time.Minute
)

// maxDifferences bounds the fields that an Event names.
const maxDifferences = 3

// preservedFields are fields that the manifests do not set, because others do: image pull secrets
// of a private registry, the guard's certificate, and the rules that Kubernetes aggregates.
var preservedFields = map[string][]string{
	"ServiceAccount": {"secrets", "imagePullSecrets"},
	"Secret":         {"data"},
	"ClusterRole":    {"rules"},
}

// rightsLabels are prefixes of labels that grant rights. Other labels and all annotations stay.
var rightsLabels = []string{"pod-security.kubernetes.io/enforce", "rbac.authorization.k8s.io/", "eviction.5spot.finos.org/"}

// create uses server-side apply. An API server without it has no admission policies either, and
// must get nothing. installedBefore reports that the object existed.
func (r *Reconciler) create(ctx context.Context, s *scope, id identity, desired *unstructured.Unstructured, installedBefore bool) error {
	if err := s.state.contested(repair{id, true}, s.now); err != nil {
		return err
	}
	created := desired.DeepCopy()
	installed.Claim(created, s.key)
	if err := s.installer.Apply(ctx, created); err != nil {
		return err
	}
	s.state.written[id] = fingerprintOf(created)
	if installedBefore {
		r.reportRestored(s, repair{id, true}, corev1.EventTypeWarning, "it was deleted")
	}
	return nil
}

// restore replaces an object with the desired one. Server-side apply would keep the fields that
// others added. A replacement that changes nothing is not a write: the API server ignores it.
// installedBefore reports that this process has written or verified the object.
func (r *Reconciler) restore(ctx context.Context, s *scope, id identity, desired, live *unstructured.Unstructured, installedBefore bool) error {
	if err := s.state.contested(repair{id, false}, s.now); err != nil {
		return err
	}
	want := desired.DeepCopy()
	installed.Claim(want, s.key)
	preserveOthers(want, live)
	after, err := r.replace(ctx, s, id, want, live)
	if err != nil {
		return err
	}
	s.state.written[id] = fingerprintOf(after)
	fields := difference.Between("", content(live), content(after))
	if len(fields) == 0 {
		return nil
	}
	difference, by := changedFields(fields), lastWriter(live, fields)
	kind := corev1.EventTypeNormal // An earlier version of 5-Spot wrote it.
	if by != nil {
		difference += "; last writer: " + by.String()
	}
	if installedBefore || by != nil {
		kind = corev1.EventTypeWarning
	}
	r.reportRestored(s, repair{id, false}, kind, difference)
	return nil
}

// replace returns what the API server stored. An object with an immutable field that differs is
// deleted and created, if the API server accepts the new one. A finalizer would keep the old one.
func (r *Reconciler) replace(ctx context.Context, s *scope, id identity, want, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	again := want.DeepCopy()
	err := s.installer.Replace(ctx, want)
	if !apierrors.IsInvalid(err) || shared[want.GetKind()] {
		return want, err
	}
	again.SetUID("")
	again.SetResourceVersion("")
	if refused := s.installer.Check(ctx, again); refused != nil {
		return nil, err
	}
	if kept := live.GetFinalizers(); len(kept) > 0 {
		return nil, fmt.Errorf("%w: remove its finalizers (%s), so that 5-Spot can delete and create it", err, clip.Line(strings.Join(kept, ", ")))
	}
	if err := r.delete(ctx, s, id, live); err != nil {
		return nil, err
	}
	return again, s.installer.Create(ctx, again)
}

// delete deletes an object that 5-Spot made. It is not missed later.
func (r *Reconciler) delete(ctx context.Context, s *scope, id identity, live client.Object) error {
	err := s.installer.Delete(ctx, live)
	if err == nil {
		delete(s.state.written, id)
	}
	return err
}

// preserveOthers completes the desired object with the parts of the live one that belong to others.
func preserveOthers(want, live *unstructured.Unstructured) {
	want.SetUID(live.GetUID())
	want.SetResourceVersion(live.GetResourceVersion())
	want.SetFinalizers(live.GetFinalizers())
	kept := live.GetLabels()
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return slices.ContainsFunc(rightsLabels, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	want.SetLabels(labels.Merge(kept, want.GetLabels()))
	want.SetAnnotations(labels.Merge(live.GetAnnotations(), want.GetAnnotations()))
	for _, field := range preservedFields[want.GetKind()] {
		if value, ok := live.Object[field]; ok && want.Object[field] == nil {
			want.Object[field] = value
		}
	}
	preserveWebhookClients(want, live)
}

// preserveWebhookClients keeps the certificate authority and the path, which the guard writes.
func preserveWebhookClients(want, live *unstructured.Unstructured) {
	desired, _, _ := unstructured.NestedSlice(want.Object, "webhooks")
	current, _, _ := unstructured.NestedSlice(live.Object, "webhooks")
	for i, w := range desired {
		hook, _ := w.(map[string]any)
		for _, c := range current {
			other, _ := c.(map[string]any)
			if hook == nil || other == nil || hook["name"] != other["name"] {
				continue
			}
			for _, field := range [][]string{{"clientConfig", "caBundle"}, {"clientConfig", "service", "path"}} {
				if value, ok, _ := unstructured.NestedString(other, field...); ok {
					_ = unstructured.SetNestedField(hook, value, field...)
				}
			}
		}
		desired[i] = hook
	}
	if len(desired) > 0 {
		_ = unstructured.SetNestedSlice(want.Object, desired, "webhooks")
	}
}

// reportRestored records an Event that names the object and what differed.
func (r *Reconciler) reportRestored(s *scope, id repair, kind, difference string) {
	s.state.restored(id, s.now, difference)
	r.Recorder.Eventf(s.cluster, nil, kind, v1alpha1.InstallationRestoredEvent, "RestoreInstallation",
		"%s %s restored to what 5-Spot installs: %s", id.kind.Kind, id.key.Name, difference)
}

// changedFields names the fields that differed.
func changedFields(fields []difference.Field) string {
	var paths []string
	for _, f := range fields[:min(len(fields), maxDifferences)] {
		paths = append(paths, f.Path)
	}
	if n := len(fields) - maxDifferences; n > 0 {
		paths = append(paths, fmt.Sprintf("%d more", n))
	}
	return strings.Join(paths, ", ") + " differed"
}

// lastWriter returns the program that wrote one of the fields last, nil if it is 5-Spot. A program
// that only removed fields is not recorded. Others write other fields of the same object.
func lastWriter(live *unstructured.Unstructured, fields []difference.Field) *writer.Writer {
	others := slices.DeleteFunc(slices.Clone(live.GetManagedFields()), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == v1alpha1.InstallerFieldManager
	})
	return writer.LastFunc(others, func(owned *fieldpath.Set) (owns bool) {
		owned.Leaves().Iterate(func(p fieldpath.Path) {
			path := difference.Path(live.Object, p)
			owns = owns || slices.ContainsFunc(fields, func(f difference.Field) bool {
				return difference.Within(path, f.Path) || difference.Within(f.Path, path)
			})
		})
		return owns
	})
}

// content is the part of an object that is compared. The API server counts templates of a DaemonSet
// in an annotation.
func content(u *unstructured.Unstructured) map[string]any {
	c := maps.Clone(u.Object)
	delete(c, "status")
	labels, _, _ := unstructured.NestedMap(u.Object, "metadata", "labels")
	annotations, _, _ := unstructured.NestedMap(u.Object, "metadata", "annotations")
	delete(annotations, appsv1.DeprecatedTemplateGeneration)
	c["metadata"] = map[string]any{"labels": labels, "annotations": annotations}
	return c
}
