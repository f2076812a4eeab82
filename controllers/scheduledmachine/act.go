// SPDX-License-Identifier: Apache-2.0

package scheduledmachine

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// errUnusable reports that a child cannot be made as the spec names it.
var errUnusable = errors.New("references cannot be used")

// act carries out exactly one action.
func (r *Reconciler) act(ctx context.Context, s *scope, d lifecycle.Decision) error {
	switch d.Action {
	case lifecycle.Hold:
		return nil
	case lifecycle.Ensure:
		return r.leaveHost(s, r.ensure(ctx, s))
	case lifecycle.Depart:
		s.pending = waits // Depart is only decided where there is something to delete.
		return r.depart(ctx, s, d)
	case lifecycle.Expedite:
		return r.leave(s, d).Expedite(ctx, &s.children)
	case lifecycle.Remove:
		_, err := r.leave(s, d).Remove(ctx, &s.children, r.Hooks)
		return err
	case lifecycle.RemoveNode:
		r.removeNode(ctx, s)
		return nil
	case lifecycle.Release:
		return r.release(ctx, s.scheduled)
	default:
		return fmt.Errorf("unknown action %q", d.Action)
	}
}

func (r *Reconciler) release(ctx context.Context, sm *v1alpha1.ScheduledMachine) error {
	if err := r.bequeath(ctx, sm); err != nil {
		return err
	}
	before := sm.DeepCopy()
	controllerutil.RemoveFinalizer(sm, v1alpha1.ScheduledMachineFinalizer)
	return r.Actuate.PatchLocked(ctx, sm, before)
}

// ensure makes the children that are missing, the Machine last: core looks for
// the objects that a Machine refers to only every 30 s. What exists is left as it
// is, but for the Machine's metadata and timeouts. After the first object it
// stops, and the rest follows behind the first objects of everybody else.
func (r *Reconciler) ensure(ctx context.Context, s *scope) error {
	if err := s.unusable(); err != nil {
		return err
	}
	bootstrap, err := r.draft(ctx, s, children.BootstrapOf(s.scheduled), s.children.Bootstrap)
	if err != nil {
		return err
	}
	infrastructure, err := r.draft(ctx, s, children.InfrastructureOf(s.scheduled), s.children.Infrastructure)
	if err != nil {
		return err
	}
	if err := s.unusable(); err != nil {
		return err // A template cannot be used: nothing is made by halves.
	}
	if s.children.Bootstrap, err = r.make(ctx, s, bootstrap); err != nil || s.pending != nothing {
		return err
	}
	if s.children.Infrastructure, err = r.make(ctx, s, infrastructure); err != nil {
		return err
	}
	if s.children.Bootstrap == nil || s.children.Infrastructure == nil {
		return nil // What was made from an older spec is on its way out; its going wakes us.
	}
	return r.ensureMachine(ctx, s)
}

// unusable reports why the children cannot be made. A Machine that lives needs
// nothing made.
func (s *scope) unusable() error {
	if s.children.Machine != nil {
		return nil
	}
	if msg := s.referenceProblems(); msg != "" {
		return fmt.Errorf("%w: %s", errUnusable, msg)
	}
	return nil
}

// draft is one of the two children that the spec describes: what exists of it, and
// else what is to be made, nil if it cannot be.
type draft struct {
	children.Part
	live, desired *unstructured.Unstructured
}

// draft reads what it takes to make a child that is missing.
func (r *Reconciler) draft(ctx context.Context, s *scope, p children.Part, live *unstructured.Unstructured) (draft, error) {
	d := draft{Part: p, live: live}
	var err error
	if live == nil {
		d.desired, err = r.desired(ctx, s, p)
	}
	return d, err
}

// make returns the child, made if it is missing. One that was made from an older
// spec is replaced as long as there is no Machine that uses it.
func (r *Reconciler) make(ctx context.Context, s *scope, d draft) (*unstructured.Unstructured, error) {
	live := d.live
	if live == nil {
		var err error
		if live, err = r.create(ctx, s, d); err != nil {
			return nil, err
		}
	}
	if s.children.Machine == nil && !live.GetDeletionTimestamp().IsZero() {
		return nil, nil // An older one on its way out, which the cache had not seen.
	}
	if s.children.Machine != nil || d.MadeFrom(live) {
		return live, nil
	}
	return nil, r.Actuate.For(r.replacing(s)).Delete(ctx, live)
}

// create makes what is desired, or returns the one of ours that exists. It is a plain
// create, which never touches somebody else's object of that name; these objects
// are not changed again (ADR 0008).
func (r *Reconciler) create(ctx context.Context, s *scope, d draft) (*unstructured.Unstructured, error) {
	if d.desired == nil {
		return nil, fmt.Errorf("%w: %s", errUnusable, s.referenceProblems())
	}
	err := r.Actuate.For(r.joining(s)).Create(ctx, d.desired)
	if err == nil {
		s.pending = follows
		return d.desired, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	live, err := r.Children.Look(ctx, &s.children, s.scheduled, d.Field, d.desired)
	if live == nil && err == nil {
		err = fmt.Errorf("%w: %s", errUnusable, s.referenceProblems())
	}
	return live, err
}

// apply makes the Machine, which is kept up to date later. Server-side apply would
// take over somebody else's object of that name, so it is looked for first, where
// no cache can be late.
func (r *Reconciler) apply(ctx context.Context, s *scope, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := r.Children.Look(ctx, &s.children, s.scheduled, "machineTemplate", desired)
	if live != nil || err != nil {
		return live, err
	}
	if err := s.unusable(); err != nil {
		return nil, err
	}
	return desired, r.Actuate.For(r.joining(s)).Apply(ctx, desired)
}

func (r *Reconciler) ensureMachine(ctx context.Context, s *scope) error {
	live := s.children.Machine
	version := ""
	if live == nil {
		var err error
		if version, err = r.version(ctx, s.cluster); err != nil {
			return err
		}
	}
	desired, err := children.Machine(s.scheduled, version, r.Clock.Now(), live)
	if err != nil {
		return err
	}
	switch {
	case live == nil:
		desired, err = r.apply(ctx, s, desired)
	case !live.DeletionTimestamp.IsZero(), !children.Outdated(live, desired):
		return nil
	default:
		desired.SetUID(live.UID) // Another of the name, or none, is a conflict.
		err = r.Actuate.Update(ctx, desired)
	}
	if err != nil {
		return err
	}
	s.children.Machine = &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, s.children.Machine); err != nil {
		return fmt.Errorf("reading applied Machine: %w", err)
	}
	return nil
}

// version is the Kubernetes version of the Cluster: that of its topology, else
// that of its control plane, else empty. Bootstrap providers such as kubeadm's
// need it on the Machine.
func (r *Reconciler) version(ctx context.Context, cluster *clusterv1.Cluster) (string, error) {
	if v := cluster.Spec.Topology.Version; v != "" {
		return v, nil
	}
	if !cluster.Spec.ControlPlaneRef.IsDefined() {
		return "", nil
	}
	v, err := r.Children.ControlPlaneVersion(ctx, cluster)
	if err != nil {
		return "", fmt.Errorf("reading the control plane's version: %w", err)
	}
	return v, nil
}
