// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
)

// install applies the manifests of a part in their order, and stops at the first error. The order ensures that no
// permission exists before the policy that restricts it, and no agent before its permissions. A contested object does
// not stop it: it was installed before, and so were the objects after it. See ADR 0012.
func (r *Reconciler) install(ctx context.Context, s *scope, p installed.Part) error {
	var suppressed, contested error
	for _, desired := range r.manifests(s, p) {
		err := r.sync(ctx, s, p, desired)
		if actuate.IsSuppressed(err) {
			suppressed = err // The suppressed writes of the other objects are reported, too.
			continue
		}
		if errors.Is(err, installed.ErrContested) {
			contested = installed.ObjectError{Kind: desired.GetKind(), Err: fmt.Errorf("installing %s: %w", p, err)}
			continue
		}
		if err != nil {
			return installed.ObjectError{Kind: desired.GetKind(), Err: fmt.Errorf("installing %s: %w", p, err)}
		}
		if err := r.watchInstalled(ctx, s.key, desired); err != nil {
			return installed.ObjectError{Kind: desired.GetKind(), Err: fmt.Errorf("watching %s: %w", desired.GetKind(), err)}
		}
	}
	if suppressed != nil {
		return suppressed
	}
	return contested
}

// manifests returns the manifests of a part for the Cluster.
func (r *Reconciler) manifests(s *scope, p installed.Part) []*unstructured.Unstructured {
	switch {
	case p == installed.Guard:
		return r.Guard
	case s.holds:
		return r.HoldManifests
	default:
		return r.Manifests
	}
}

// uninstall deletes the objects of a part in reverse order. It skips a part that is known to be gone.
func (r *Reconciler) uninstall(ctx context.Context, s *scope, p installed.Part) error {
	if s.state.clean[p] {
		return nil
	}
	for _, desired := range slices.Backward(r.manifests(s, p)) {
		if err := r.sync(ctx, s, p, desired); err != nil {
			return fmt.Errorf("removing %s: %w", p, err)
		}
	}
	return nil
}

// sync reads one object of the installation, decides, and carries out the decision.
func (r *Reconciler) sync(ctx context.Context, s *scope, p installed.Part, desired *unstructured.Unstructured) error {
	id := identity{p, desired.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(desired)}
	facts, live, err := r.look(ctx, s, id, desired)
	if err != nil {
		return err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("kind", id.kind.Kind, "object", id.key)
	switch verdict := DecideInstall(facts); verdict {
	case Keep:
		if live != nil && facts.Wanted && !facts.Leaving {
			s.state.written[id] = fingerprintOf(live)
		}
		return nil
	case Install:
		log.V(1).Info("Creating in workload cluster")
		return r.create(ctx, s, id, desired, facts.InstalledBefore)
	case Repair:
		log.V(1).Info("Restoring in workload cluster")
		whole, ok := live.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("restoring %s %s: only its metadata was read", id.kind.Kind, id.key.Name)
		}
		return r.restore(ctx, s, id, desired, whole, facts.InstalledBefore)
	case Uninstall:
		log.Info("Removing from workload cluster")
		return r.delete(ctx, s, id, live)
	case Refuse:
		return installed.ForeignError(id.kind.Kind, id.key.Name)
	default:
		return fmt.Errorf("unknown verdict %q", verdict)
	}
}

// shared has the kinds that are never deleted, because the deletion would delete objects of others.
var shared = map[string]bool{"Namespace": true, "CustomResourceDefinition": true}

// look reads one object of the installation. If the cache shows no change since the latest check, it returns only the
// metadata. Otherwise it reads the whole object live, because the cache has only objects of 5-Spot.
func (r *Reconciler) look(ctx context.Context, s *scope, id identity, desired *unstructured.Unstructured) (InstallFacts, client.Object, error) {
	f := InstallFacts{Wanted: s.needs(id.part), Shared: shared[id.kind.Kind]}
	var left fingerprint
	left, f.InstalledBefore = s.state.written[id]
	if f.InstalledBefore {
		cached := &metav1.PartialObjectMetadata{}
		cached.SetGroupVersionKind(desired.GroupVersionKind())
		err := s.reader.Get(ctx, id.key, cached)
		if err != nil && !actuate.Gone(err) {
			return f, nil, fmt.Errorf("reading %s %s: %w", id.kind.Kind, id.key.Name, err)
		}
		if f := f.withObject(cached, s.key, desired, left); err == nil && f.AsLeft {
			return f, cached, nil
		}
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(desired.GroupVersionKind())
	if err := s.live.Get(ctx, id.key, live); err != nil {
		if actuate.Gone(err) {
			return f, nil, nil
		}
		return f, nil, fmt.Errorf("looking at %s %s: %w", id.kind.Kind, id.key.Name, err)
	}
	return f.withObject(live, s.key, desired, left), live, nil
}

// withObject adds the facts of an existing object. AsLeft also compares 5-Spot's labels and annotations, because they
// do not change the generation.
func (f InstallFacts) withObject(live metav1.Object, cluster client.ObjectKey, desired *unstructured.Unstructured, left fingerprint) InstallFacts {
	f.Presence = installed.PresenceOf(live, cluster)
	f.Leaving = !live.GetDeletionTimestamp().IsZero()
	claimed := &metav1.ObjectMeta{Labels: desired.GetLabels(), Annotations: desired.GetAnnotations()}
	installed.Claim(claimed, cluster)
	f.AsLeft = f.InstalledBefore && fingerprintOf(live) == left &&
		labels.SelectorFromSet(claimed.Labels).Matches(labels.Set(live.GetLabels())) &&
		labels.SelectorFromSet(claimed.Annotations).Matches(labels.Set(live.GetAnnotations()))
	return f
}
