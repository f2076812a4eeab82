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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
)

// errUnusable means that the spec does not allow 5-Spot to create a child: a reference in it is invalid.
var errUnusable = errors.New("references cannot be used")

// act carries out the one action of the Decision.
func (r *Reconciler) act(ctx context.Context, s *scope, d lifecycle.Decision) error {
	switch d.Action {
	case lifecycle.Hold:
		return nil
	case lifecycle.Ensure:
		return r.leaveHost(s, r.ensure(ctx, s))
	case lifecycle.RequestDeparture:
		if err := r.request(ctx, s, d); err != nil {
			return err
		}
		switch w := s.waiting(r.Clock.Now()); {
		case w == nil:
			r.awaitPlanner(s)
		case w.Reason == v1alpha1.DeletionFailed:
			return errors.New(w.Message)
		}
		return nil
	case lifecycle.Depart:
		s.pending = workWaits // lifecycle decides Depart only if there is an object to delete.
		return r.departureAction(s, d).Depart(ctx, &s.children)
	case lifecycle.Expedite:
		return r.departureAction(s, d).Expedite(ctx, &s.children)
	case lifecycle.Remove:
		_, err := r.departureAction(s, d).Remove(ctx, &s.children, r.Hooks)
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
	if err := r.saveReclaimRecord(ctx, sm); err != nil {
		return err
	}
	before := sm.DeepCopy()
	controllerutil.RemoveFinalizer(sm, v1alpha1.ScheduledMachineFinalizer)
	return r.Actuate.PatchLocked(ctx, sm, before)
}

// ensure creates the missing children. It creates the Machine last, because Cluster API checks a Machine's references
// only every 30 s. Of an existing Machine it updates only the metadata and the timeouts. It stops after the first
// object that it creates. The next reconcile continues, so that the first objects of other machines are not delayed.
func (r *Reconciler) ensure(ctx context.Context, s *scope) error {
	if err := s.unusable(); err != nil {
		return err
	}
	drafts := s.drafts()
	for i := range drafts {
		if err := r.build(ctx, s, &drafts[i]); err != nil {
			return err
		}
	}
	err := s.unusable()
	if err != nil {
		return err // One unusable template stops both: a machine is never created partially.
	}
	if s.children.Bootstrap, err = r.make(ctx, s, drafts[0]); err != nil || s.pending != workDone {
		return err
	}
	if s.children.Infrastructure, err = r.make(ctx, s, drafts[1]); err != nil {
		return err
	}
	if s.children.Bootstrap == nil || s.children.Infrastructure == nil {
		return nil // A child made from an older spec is being deleted. The event of its deletion triggers the next reconcile.
	}
	return r.ensureMachine(ctx, s)
}

// unusable returns why no child can be created. It returns nil if the Machine exists, because nothing has to be created
// then.
func (s *scope) unusable() error {
	if s.children.Machine != nil {
		return nil
	}
	if msg := s.referenceProblems(); msg != "" {
		return fmt.Errorf("%w: %s", errUnusable, msg)
	}
	return nil
}

// draft is one of the two children that the spec describes, the bootstrap config or the infrastructure machine. live is
// the existing object. desired is the object to create if live is nil; it is nil if it cannot be built.
type draft struct {
	children.Part
	live, desired *unstructured.Unstructured
}

// drafts returns the bootstrap config and the infrastructure machine, without desired objects.
func (s *scope) drafts() [2]draft {
	return [2]draft{
		{Part: children.BootstrapOf(s.scheduled), live: s.children.Bootstrap},
		{Part: children.InfrastructureOf(s.scheduled), live: s.children.Infrastructure},
	}
}

// build sets the desired object of a missing child. From a template it takes the object that observeClone checked.
func (r *Reconciler) build(ctx context.Context, s *scope, d *draft) (err error) {
	switch {
	case d.live != nil:
	case s.clone.known && d.Field == children.InfrastructureOf(s.scheduled).Field:
		s.children.Problems = append(s.children.Problems, s.clone.read.Problems...)
		s.children.Templates = append(s.children.Templates, s.clone.read.Templates...)
		d.desired, err = s.clone.object, s.clone.err
	default:
		d.desired, err = r.Children.Desired(ctx, &s.children, d.Part)
	}
	return err
}

// make returns the child, and creates it if it is missing. It deletes a child that was made from an older spec, as long
// as no Machine uses it.
func (r *Reconciler) make(ctx context.Context, s *scope, d draft) (*unstructured.Unstructured, error) {
	live := d.live
	if live == nil {
		var err error
		if live, err = r.create(ctx, s, d); err != nil {
			return nil, err
		}
	}
	if s.children.Machine == nil && !live.GetDeletionTimestamp().IsZero() {
		return nil, nil // An older child that is being deleted. The cache did not show it yet.
	}
	if s.children.Machine != nil || d.MadeFrom(live) {
		return live, nil
	}
	i := r.intent(s)
	i.Reason = v1alpha1.MachineReplaced
	return nil, r.Actuate.For(i).Delete(ctx, live)
}

// create creates the desired object, or returns the existing one that belongs to sm. It uses a plain create, which
// never overwrites an object of another writer with the same name. 5-Spot does not change these objects later (ADR
// 0008).
func (r *Reconciler) create(ctx context.Context, s *scope, d draft) (*unstructured.Unstructured, error) {
	if d.desired == nil {
		return nil, fmt.Errorf("%w: %s", errUnusable, s.referenceProblems())
	}
	err := r.Actuate.For(r.joining(s)).Create(ctx, d.desired)
	if err == nil {
		s.pending = workFollows
		return d.desired, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	live, err := r.Children.ReadBeforeCreate(ctx, &s.children, s.scheduled, d.Field, d.desired)
	if live == nil && err == nil {
		err = fmt.Errorf("%w: %s", errUnusable, s.referenceProblems())
	}
	return live, err
}

// apply creates the Machine with server-side apply, because 5-Spot updates it later. Server-side apply would take over
// a Machine of another writer with the same name. Therefore a live read checks for one first.
func (r *Reconciler) apply(ctx context.Context, s *scope, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, err := r.Children.ReadBeforeCreate(ctx, &s.children, s.scheduled, "machineTemplate", desired)
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
		desired.SetUID(live.UID) // The UID makes the update conflict if the Machine was deleted or replaced.
		err = r.Actuate.Apply(ctx, desired, client.ForceOwnership)
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

// version returns the Kubernetes version of the Cluster: from its topology, else from its control plane, else empty.
// Bootstrap providers such as kubeadm need it on the Machine.
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
