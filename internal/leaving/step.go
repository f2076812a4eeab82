// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A Step is done by this process before a machine leaves, beside the extensions that are
// asked. It is safe for concurrent use.
type Step interface {
	// Concerns reports whether there is anything to do for the Machine in any phase.
	Concerns(ctx context.Context, m *clusterv1.Machine) (bool, error)
	// Look says how far the step has come in a phase, and begins what is next. It reads
	// caches, and never waits for anybody.
	Look(ctx context.Context, d Departing, now time.Time) (Verdict, error)
}

// A Departing is a Machine that leaves.
type Departing struct {
	Machine *clusterv1.Machine
	// Phase is the one that it is in, in the words of extensions.
	Phase string
	// Began is when the phase did.
	Began time.Time
}

// A Verdict is what a Step says. The zero value lets the Machine go.
type Verdict struct {
	// Holds says that the Machine waits for the step.
	Holds bool
	// Again is when time alone changes the verdict; zero is never.
	Again time.Time
	// Notes say what the step waits for, or why it was not waited for.
	Notes []string
}

// Steps are all of them.
type Steps []Step

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
