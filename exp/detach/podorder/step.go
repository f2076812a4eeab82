// SPDX-License-Identifier: Apache-2.0

// Package podorder answers one question: have the pods of a Node that leaves been stopped in
// the order that people asked for? These are the ones that a drain leaves, most of them
// those of DaemonSets. Package order decides; this package reads and deletes pods, by
// live calls that no worker waits for.
//
// Which pods are meant is on the Node, and what became of them on themselves: a manager that
// comes later goes on where the other stopped.
package podorder

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/leaving"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

// A Departing is a Machine in a phase of its departure.
type Departing struct {
	// Machine is the one that leaves.
	Machine *clusterv1.Machine
	// Cluster is the key of its Cluster.
	Cluster client.ObjectKey
	// Node is the name of the Node that is believed to be the Machine's, empty if none is.
	Node string
	// Phase is where in its departure it is.
	Phase hooksv1.Phase
	// Began is when the phase began.
	Began time.Time
}

// A Verdict is what a Step says of a Machine at an instant.
type Verdict struct {
	// Holds says that the Machine waits for it.
	Holds bool
	// Again is when time alone changes the Verdict.
	Again time.Time
	// Note says what it waits for, or why it was not waited for; empty if neither.
	Note string
}

const (
	// DefaultDeadline is how long the pods of a Node have, all together.
	DefaultDeadline = 5 * time.Minute
	// callTimeout bounds one look at the pods, and what is deleted then.
	callTimeout = 10 * time.Second
	// podTimeout bounds the deletion of one pod: a disruption budget may ask to wait.
	podTimeout = 2 * time.Second
	// nextLook is when pods that are on their way are looked at again: nobody watches the
	// pods of all clusters for that.
	nextLook = 3 * time.Second
	// nextTry is when what failed or was refused is tried again.
	nextTry = 5 * time.Second
)

// A Step stops the pods of Nodes in order, before Machines are terminated.
type Step struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Actuate writes to workload clusters.
	Actuate *actuate.Actuator
	// ClusterCache reaches them.
	ClusterCache clustercache.ClusterCache
	// Desk makes the calls. It is this step's alone, and wakes whoever looks.
	Desk *leaving.Desk
	// Deadline is how long the pods of a Node have; zero is DefaultDeadline.
	Deadline time.Duration
}

// Look says whether the Machine waits for its pods. It begins a call where one is due, and
// waits for none.
func (s *Step) Look(ctx context.Context, d Departing, now time.Time) (Verdict, error) {
	if d.Phase != hooksv1.BeforeTermination || d.Node == "" {
		return Verdict{}, nil
	}
	q := leaving.Question{Machine: d.Machine.UID, Step: laneOf(d.Cluster), Phase: string(d.Phase)}
	p := s.Desk.Look(q, 0)
	v, due := judge(p, s.deadline(), d.Began, now)
	if due {
		s.Desk.Ask(ctx, client.ObjectKeyFromObject(d.Machine), q, 0, func(ctx context.Context) leaving.Answer { return s.look(ctx, d) })
	}
	return v, nil
}

// laneOf has the clusters not take each other's places at the Desk: one that does not answer
// keeps all of its own.
func laneOf(cluster client.ObjectKey) types.UID { return types.UID(cluster.String()) }

func (s *Step) deadline() time.Duration {
	if s.Deadline == 0 {
		return DefaultDeadline
	}
	return s.Deadline
}

// judge weighs how far the pods have come, and says whether a call is due.
func judge(p leaving.Progress, has time.Duration, began, now time.Time) (v Verdict, due bool) {
	a, wait, says := p.Answer, nextTry, "pods have not been looked at yet"
	switch {
	case p.Answered.IsZero():
		wait = 0
	case a.Err != nil:
		says = a.Err.Error()
	case a.Wait == 0:
		return Verdict{Note: a.Says}, false
	default:
		wait, says = a.Wait, a.Says
	}
	until := p.Until(has, callTimeout, began, now)
	if !now.Before(until) {
		return Verdict{Note: fmt.Sprintf("pods were not stopped within %s: %s", has, says)}, false
	}
	v = Verdict{Holds: true, Again: until, Note: says}
	if next := p.Answered.Add(wait); !p.Open && next.After(now) {
		if next.Before(until) {
			v.Again = next
		}
		return v, false
	}
	return v, !p.Open
}

// look looks at the pods once, and deletes those whose turn it is.
func (s *Step) look(ctx context.Context, d Departing) leaving.Answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := s.observe(ctx, d)
	if err != nil || n == nil {
		return leaving.Answer{Err: err}
	}
	decision, refused, err := s.act(ctx, d, n)
	a := leaving.Answer{Says: strings.Join(append(decision.Notes, refused...), "; "), Err: err}
	switch {
	case decision.Done():
	case len(refused) > 0:
		a.Wait = nextTry
	default:
		a.Wait = nextLook
	}
	return a
}
