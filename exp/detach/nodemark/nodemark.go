// SPDX-License-Identifier: Apache-2.0

// Package nodemark answers one question: how does a Node leave a load balancer that looks at
// the Node itself? It is marked. A mark has an owner: one of ours has an annotation with the
// instant of it, written in the same patch, and only such a mark is taken off again. Nobody
// can see when the load balancer let go, so that is waited for.
package nodemark

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// every is between two looks, which cost a read from a cache.
const every = 5 * time.Second

// Nodes are the Nodes of the workload cluster.
type Nodes interface {
	// Get returns a Node, or an error that says NotFound.
	Get(ctx context.Context, name string) (*corev1.Node, error)
	// List returns all Nodes.
	List(ctx context.Context) ([]corev1.Node, error)
	// Edit writes what change makes of a Node that Get returned, in one patch, and not if
	// somebody else wrote in between.
	Edit(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error
}

// An Owner is whose mark a Node has.
type Owner int

const (
	// Nobody marked the Node.
	Nobody Owner = iota
	// Others marked it.
	Others
	// Us is 5-Spot.
	Us
)

// A Mark is what load balancers look for.
type Mark struct {
	// Annotation says when we put the mark on.
	Annotation string
	// Owner is whose mark a Node has.
	Owner func(*corev1.Node) Owner
	// PutOn marks a Node which nobody marked.
	PutOn func(*corev1.Node)
	// TakeOff takes our mark off, and nothing else.
	TakeOff func(*corev1.Node)
	// Volatile says that there are programs which take our mark off.
	Volatile bool
}

// Driver is the balancer.Driver of those that look for a Mark. It remembers nothing.
type Driver struct {
	nodes Nodes
	clock clock.PassiveClock
	mark  Mark
	wait  time.Duration
}

var _ balancer.Driver = &Driver{}

// New returns a Driver that takes a load balancer to have let go some time after the mark.
func New(nodes Nodes, c clock.PassiveClock, mark Mark, wait time.Duration) *Driver {
	return &Driver{nodes: nodes, clock: c, mark: mark, wait: wait}
}

// Every implements balancer.Driver.
func (*Driver) Every() time.Duration { return every }

// Volatile implements balancer.Driver.
func (d *Driver) Volatile() bool { return d.mark.Volatile }

// Discover implements balancer.Driver. A Node has one place, as long as it is there.
func (d *Driver) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	found, err := d.get(ctx, node.Name)
	if err != nil || found == nil {
		return nil, err
	}
	return []balancer.Membership{{Member: node.Name}}, nil
}

// get returns nil if there is no such Node.
func (d *Driver) get(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := d.nodes.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// Status implements balancer.Driver.
func (d *Driver) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	nodes, err := d.nodes.List(ctx)
	if err != nil {
		return nil, err
	}
	statuses := make([]balancer.Status, len(memberships))
	for i, m := range memberships {
		others := 0
		for j := range nodes {
			if nodes[j].Name != m.Member && d.serves(&nodes[j]) {
				others++
			}
		}
		node, err := d.get(ctx, m.Member)
		if err != nil {
			return nil, err
		}
		statuses[i] = balancer.Status{State: d.state(node), Others: &others}
	}
	return statuses, nil
}

// serves says whether load balancers send connections to a Node.
func (d *Driver) serves(node *corev1.Node) bool {
	return node.DeletionTimestamp.IsZero() && d.mark.Owner(node) == Nobody &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

func (d *Driver) state(node *corev1.Node) balancer.State {
	if node == nil {
		return balancer.Absent
	}
	switch d.mark.Owner(node) {
	case Nobody:
		return balancer.Attached
	case Others:
		return balancer.Disabled
	case Us:
		if since, known := d.since(node); known && !d.clock.Now().Before(since.Add(d.wait)) {
			return balancer.Drained
		}
		return balancer.Draining
	default:
		return balancer.Unknown
	}
}

// since is when we marked a Node. An instant that is still to come is not known: somebody's
// clock is wrong, and may be so by years.
func (d *Driver) since(node *corev1.Node) (since time.Time, known bool) {
	since, err := time.Parse(time.RFC3339, node.Annotations[d.mark.Annotation])
	return since, err == nil && !since.After(d.clock.Now())
}

// Drain implements balancer.Driver. A Node that lost its mark gets it again, and the wait
// begins anew: the load balancer may have taken it back.
func (d *Driver) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return d.edit(ctx, memberships, func(node *corev1.Node) {
		owner := d.mark.Owner(node)
		if _, known := d.since(node); owner == Others || owner == Us && known {
			return
		}
		if owner == Nobody {
			d.mark.PutOn(node)
		}
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[d.mark.Annotation] = d.clock.Now().UTC().Format(time.RFC3339)
	})
}

// Restore implements balancer.Driver.
func (d *Driver) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return d.edit(ctx, memberships, func(node *corev1.Node) {
		if d.mark.Owner(node) == Us {
			d.mark.TakeOff(node)
		}
		delete(node.Annotations, d.mark.Annotation)
	})
}

// edit changes those Nodes that are there, and writes those that change.
func (d *Driver) edit(ctx context.Context, memberships []balancer.Membership, change func(*corev1.Node)) error {
	var errs []error
	for _, m := range memberships {
		node, err := d.get(ctx, m.Member)
		if err != nil || node == nil {
			errs = append(errs, err)
			continue
		}
		changed := node.DeepCopy()
		if change(changed); !equality.Semantic.DeepEqual(node, changed) {
			errs = append(errs, d.nodes.Edit(ctx, node, change))
		}
	}
	return errors.Join(errs...)
}
