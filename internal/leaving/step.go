// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// A Step is built-in work before a Machine leaves, in parallel with the extensions. Implementations must be
// safe for concurrent use.
type Step interface {
	// Concerns reports whether the step applies to the Machine in any phase.
	Concerns(ctx context.Context, m *clusterv1.Machine) (bool, error)
	// Check returns the state of the step in a phase and starts its next action. It reads caches and does not
	// block.
	Check(ctx context.Context, d Departing, now time.Time) (Verdict, error)
	// Forget drops the state of a deleted Machine.
	Forget(machine types.UID)
}

// A Departing is a Machine that leaves.
type Departing struct {
	Machine *clusterv1.Machine
	// Node is the name of the Machine's Node, empty if none is accepted.
	Node string
	// Phase is the current phase.
	Phase hooksv1.Phase
	// Began is when the phase began.
	Began time.Time
	// Grace is how long the whole departure may take, zero if there is no limit.
	Grace time.Duration
}

// A Verdict is the state of a Step. The zero value means that the Step is done.
type Verdict struct {
	// Holds reports that the Machine waits for the step.
	Holds bool
	// Again is when the Verdict changes without an event, zero if never.
	Again time.Time
	// Reason is the reason of the condition ReadyForDeletion while Holds is set. If Missed is set, it is the reason
	// for which the Machine waited. It has no meaning otherwise.
	Reason string
	// Missed reports that the step was not done at its deadline, or when the Node stopped answering. Failed
	// reports that it failed and is configured to be ignored then.
	Missed, Failed bool
	// Note describes what the step waits for, or why the Machine does not wait. It is empty if there is
	// neither.
	Note string
}

// Cluster returns the key of the Machine's Cluster.
func (d Departing) Cluster() client.ObjectKey {
	return client.ObjectKey{Namespace: d.Machine.Namespace, Name: d.Machine.Spec.ClusterName}
}

// HalfGrace returns half of the grace period and its name, zero without a limit. The other half is for the drain.
func (d Departing) HalfGrace() (half time.Duration, name string) {
	half = d.Grace / 2
	return half, fmt.Sprintf("%s, half of the machine's gracefulShutdownTimeout", half)
}

// Steps are the built-in steps of a manager.
type Steps []Step

// Forget drops the state of a deleted Machine in every step.
func (s Steps) Forget(machine types.UID) {
	for _, step := range s {
		step.Forget(machine)
	}
}

// For returns the steps that apply to a Machine. It fails if one of them cannot determine that.
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
