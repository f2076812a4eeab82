// SPDX-License-Identifier: Apache-2.0

// Package specs answers one question: does 5-Spot do for a Cluster what it is for?
// Its functions are the bodies of tests. They know the API only, and so run wherever
// there is a management cluster with 5-Spot and a Cluster in it: on the local plane,
// and on kind.
package specs

import (
	"context"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// T is what a test of the standard library and one of Ginkgo have in common.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A Cluster is where a spec runs, and for whom.
type Cluster struct {
	// T is the test.
	T T
	// Management and Workload reach the API servers, without a cache.
	Management, Workload client.WithWatch
	// Namespace is that of the Cluster, and exists in the workload cluster, too.
	Namespace string
	// NewScheduledMachine returns one for this Cluster and its provider that is always
	// in its window. It is not created yet.
	NewScheduledMachine func(name string) *v1alpha1.ScheduledMachine
	// Image is one whose container runs until it is stopped.
	Image string
	// Patience is how long one step may take.
	Patience time.Duration
}

// timeout is a context for one step.
func (c *Cluster) timeout() context.Context {
	ctx, cancel := context.WithTimeout(c.T.Context(), c.Patience)
	c.T.Cleanup(cancel)
	return ctx
}

func (c *Cluster) must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatalf("%v", err)
	}
}

// Start creates a ScheduledMachine and does not wait.
func (c *Cluster) Start(sm *v1alpha1.ScheduledMachine) *v1alpha1.ScheduledMachine {
	c.T.Helper()
	c.must(c.Management.Create(c.timeout(), sm))
	return sm
}

// Edit changes an object of the management cluster as kubectl patch would: only what
// differs is sent, and nobody else's newer value is undone.
func (c *Cluster) Edit(obj client.Object, mutate func()) error {
	ctx := c.timeout()
	if err := c.Management.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
		return err
	}
	before := obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one
	mutate()
	return c.Management.Patch(ctx, obj, client.MergeFrom(before))
}

// Remove deletes a ScheduledMachine and waits until it is gone.
func (c *Cluster) Remove(sm *v1alpha1.ScheduledMachine) {
	c.T.Helper()
	ctx := c.timeout()
	c.must(c.Management.Delete(ctx, sm))
	c.must(await.Gone(ctx, c.Management, sm))
}

// Children reads the objects that the status of sm refers to.
func (c *Cluster) Children(sm *v1alpha1.ScheduledMachine) []*unstructured.Unstructured {
	c.T.Helper()
	st := sm.Status
	var found []*unstructured.Unstructured
	for _, ref := range []*v1alpha1.ChildReference{st.MachineRef, st.InfrastructureRef, st.BootstrapRef} {
		if ref == nil {
			c.T.Fatalf("the status of ScheduledMachine %s must refer to all its children: %+v", sm.Name, st)
			return nil
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		c.must(c.Management.Get(c.timeout(), client.ObjectKey{Namespace: sm.Namespace, Name: ref.Name}, u))
		found = append(found, u)
	}
	return found
}

// wantGone checks that children which were there are there no more.
func (c *Cluster) wantGone(children []*unstructured.Unstructured) {
	c.T.Helper()
	for _, u := range children {
		if err := c.Management.Get(c.timeout(), client.ObjectKeyFromObject(u), u.DeepCopy()); !apierrors.IsNotFound(err) {
			c.T.Errorf("%s %s must be gone: %v", u.GetKind(), u.GetName(), err)
		}
	}
}
