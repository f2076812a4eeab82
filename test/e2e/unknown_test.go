// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// TestVersionNoLongerServed upgrades the provider as it is done: the next version is
// served, then the last one is not, and the manager is restarted some time later. It stops
// what all tests share, so it is not parallel.
func TestVersionNoLongerServed(t *testing.T) {
	l := newLab(t, "served")
	machines := []*v1alpha1.ScheduledMachine{l.running("box0", nil), l.running("box1", nil), l.running("box2", nil)}
	var objects []client.Object
	for _, sm := range machines {
		f := l.family(sm)
		objects = append(objects, f.machine, f.infra, f.bootstrap)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "planemachines.infrastructure.cluster.x-k8s.io"}}
	l.edit(crd, func() {
		next := *crd.Spec.Versions[0].DeepCopy()
		next.Name, next.Storage = "v1beta2", false
		crd.Spec.Versions = append(crd.Spec.Versions, next)
		crd.Spec.Versions[0].Served = false
	})
	t.Cleanup(func() {
		l.edit(crd, func() { crd.Spec.Versions = crd.Spec.Versions[:1]; crd.Spec.Versions[0].Served = true })
	})
	l.must(shared.Manager.Kill())
	l.must(shared.Manager.Start(timeout(t, patience)))
	for _, sm := range machines { // Each is looked at by the new manager.
		l.edit(sm, func() { sm.Spec.MachineTemplate.Labels = map[string]string{"example.org/seen": "yes"} })
		l.waitFor(sm, func() error {
			if sm.Status.ObservedGeneration != sm.Generation {
				return errors.New("nobody has looked at it")
			}
			return phaseIs(sm, active)
		})
	}
	holds(t, shortly, func(ctx context.Context) error {
		for _, o := range objects {
			now := o.DeepCopyObject().(client.Object)
			if o.GetObjectKind().GroupVersionKind().Kind == "PlaneMachine" {
				continue // Its typed client speaks the version that is not served.
			}
			if err := unchanged(ctx, now); err != nil {
				return fmt.Errorf("a machine that runs was taken away: %w", err)
			}
		}
		return nil
	})
}

func TestWithoutOurLabel(t *testing.T) {
	t.Parallel()
	l := newLab(t, "nolabel")
	for name, of := range map[string]func(family) client.Object{
		"machine":   func(f family) client.Object { return f.machine },
		"infra":     func(f family) client.Object { return f.infra },
		"bootstrap": func(f family) client.Object { return f.bootstrap },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := *l
			l.t = t
			sm := l.running(name, nil)
			before := l.family(sm).machine
			child := of(l.family(sm))
			l.edit(child, func() {
				labels := child.GetLabels()
				delete(labels, v1alpha1.ScheduledMachineLabel)
				child.SetLabels(labels)
			})
			l.waitFor(child, func() error {
				if child.GetLabels()[v1alpha1.ScheduledMachineLabel] != sm.Name {
					return errors.New("our label is not put back")
				}
				return nil
			})
			holds(t, shortly, func(ctx context.Context) error { return unchanged(ctx, before) })
			l.askBack(l.node(sm), "java")
			l.wantReclaimed(sm, "java")
		})
	}
}
