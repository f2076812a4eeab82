// SPDX-License-Identifier: Apache-2.0

// Package specs has the bodies of tests that 5-Spot serves a Cluster as promised. They use only the API, and so run in
// every management cluster with 5-Spot and a Cluster: on the local plane, and on kind.
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

// T is the common interface of testing.T and of Ginkgo.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A Cluster is the Cluster in which a spec runs.
type Cluster struct {
	// T is the test.
	T T
	// Management and Workload are clients of the API servers, without a cache.
	Management, Workload client.WithWatch
	// Namespace is the namespace of the Cluster, and also exists in the workload cluster.
	Namespace string
	// NewScheduledMachine returns a ScheduledMachine for this Cluster and its provider, with a window that is always
	// open. It is not created yet.
	NewScheduledMachine func(name string) *v1alpha1.ScheduledMachine
	// Image is an image whose container runs until it is stopped.
	Image string
	// Patience bounds one step.
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

// Edit changes an object of the management cluster as kubectl patch would: it sends only the differences, so it
// overwrites no newer value of another client.
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

// wantGone checks that children no longer exist.
func (c *Cluster) wantGone(children []*unstructured.Unstructured) {
	c.T.Helper()
	for _, u := range children {
		if err := c.Management.Get(c.timeout(), client.ObjectKeyFromObject(u), u.DeepCopy()); !apierrors.IsNotFound(err) {
			c.T.Errorf("%s %s must be gone: %v", u.GetKind(), u.GetName(), err)
		}
	}
}
