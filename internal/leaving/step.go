// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// A Step is done by this process before a machine leaves, beside the extensions that are
// asked. It is safe for concurrent use.
type Step interface {
	// Concerns reports whether there is anything to do for the Machine in any phase.
	Concerns(ctx context.Context, m *clusterv1.Machine) (bool, error)
	// Look says how far the step has come in a phase, and begins what is next. It reads
	// caches, and never waits for anybody.
	Look(ctx context.Context, d Departing, now time.Time) (Verdict, error)
	// Forget forgets a Machine that is gone.
	Forget(machine types.UID)
}

// A Departing is a Machine that leaves.
type Departing struct {
	Machine *clusterv1.Machine
	// Node is the name of the one that is believed to be the Machine's, empty if none is.
	Node string
	// Phase is the one that it is in.
	Phase hooksv1.Phase
	// Began is when the phase did.
	Began time.Time
	// Grace is how long the whole departure may take; zero if nobody says.
	Grace time.Duration
}

// A Verdict is what a Step says. The zero value lets the Machine go.
type Verdict struct {
	// Holds says that the Machine waits for the step.
	Holds bool
	// Again is when time alone changes the Verdict; zero is never.
	Again time.Time
	// Reason is that of the condition ReadyToLeave while the step holds the Machine, and that for
	// which it did where Missed is set; it means nothing otherwise.
	Reason string
	// Missed says that the step was not done when its deadline passed, and Failed that it failed
	// and people have chosen not to wait for it then.
	Missed, Failed bool
	// Note says what the step waits for, or why it was not waited for; empty if neither.
	Note string
}

// Cluster is the key of the Machine's Cluster.
func (d Departing) Cluster() client.ObjectKey {
	return client.ObjectKey{Namespace: d.Machine.Namespace, Name: d.Machine.Spec.ClusterName}
}

// Steps are all of them.
type Steps []Step

// Forget forgets a Machine that is gone.
func (s Steps) Forget(machine types.UID) {
	for _, step := range s {
		step.Forget(machine)
	}
}

// For returns those that concern a Machine.
func (s Steps) For(ctx context.Context, m *clusterv1.Machine) (found Steps, err error) {
	for _, step := range s {
		concerned, err := step.Concerns(ctx, m)
		if err != nil {
			return nil, err
		}
		if concerned {
			found = append(found, step)
		}
	}
	return found, nil
}
