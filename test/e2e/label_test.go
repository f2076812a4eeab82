// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
