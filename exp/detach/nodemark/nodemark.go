// SPDX-License-Identifier: Apache-2.0

// Package nodemark answers one question: how does a Node leave a load balancer that looks at
// the Node itself? It is marked. A mark has an owner: one of ours has an annotation with the
// instant of it, written in the same patch, and only such a mark is taken off again. Nobody
// can see when the load balancer let go, so that is waited for.
package nodemark

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// every is between two looks. One costs a list from a cache, whatever number of Nodes it is for, and
// a live read of each Node that the cache does not show yet as we wrote it.
const every = 5 * time.Second

// Nodes are the Nodes of the workload cluster.
type Nodes interface {
	// Get returns a Node as it is now, or an error that says NotFound.
	Get(ctx context.Context, name string) (*corev1.Node, error)
	// List returns all Nodes, as a cache shows them, which may be late.
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

// Driver is the balancer.Driver of those that look for a Mark. It remembers nothing but which Nodes
// the cache may show as they were before it wrote them.
//
// Of those the cache is not believed. It would say that a Node which we have just marked has no
// mark: its place would be taken off the record, and nobody would take the mark off any more. Or it
// would say that one whose mark we have just taken off was marked long ago: a machine that leaves
// would not wait for its load balancers. Any other Node is looked at somewhat later than it changed,
// as between two looks, and who marks a Node or takes a mark off reads it live. A new Driver remembers
// none: its LoadBalancer was changed, or the manager has started, and the cache had that time.
type Driver struct {
	nodes Nodes
	clock clock.PassiveClock
	mark  Mark
	wait  time.Duration

	mu sync.Mutex
	// replaced are the versions of Nodes that we wrote on, by name. Nobody else wrote in between, so
	// every later version has what we wrote. A write that failed may have been carried out.
	replaced map[string]string
}

var _ balancer.Driver = &Driver{}

// New returns a Driver that takes a load balancer to have let go some time after the mark.
func New(nodes Nodes, c clock.PassiveClock, mark Mark, wait time.Duration) *Driver {
	return &Driver{nodes: nodes, clock: c, mark: mark, wait: wait, replaced: map[string]string{}}
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

// Elsewhere implements balancer.Driver. The mark is on the Node itself.
func (*Driver) Elsewhere(balancer.Node, balancer.Membership) bool { return false }

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
	nodes, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	serving := 0
	for _, node := range nodes {
		if d.serves(node) {
			serving++
		}
	}
	statuses := make([]balancer.Status, len(memberships))
	for i, m := range memberships {
		node, others := nodes[m.Member], serving
		if node != nil && d.serves(node) {
			others--
		}
		statuses[i] = balancer.Status{State: d.state(node), Others: &others}
	}
	return statuses, nil
}

// look returns all Nodes by name. Those that the cache does not show yet as we wrote them are read
// live.
func (d *Driver) look(ctx context.Context) (map[string]*corev1.Node, error) {
	list, err := d.nodes.List(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]*corev1.Node, len(list))
	for i := range list {
		nodes[list[i].Name] = &list[i]
	}
	for _, name := range d.late(nodes) {
		node, err := d.get(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case node == nil:
			delete(nodes, name)
			d.forget(name)
		default:
			nodes[name] = node
		}
	}
	return nodes, nil
}

// late are the names of Nodes that the cache may show as they were before we wrote them.
func (d *Driver) late(cached map[string]*corev1.Node) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.replaced, func(name, version string) bool {
		node := cached[name]
		if node == nil {
			return false
		}
		newer, err := resourceversion.CompareResourceVersion(node.ResourceVersion, version)
		return err == nil && newer > 0
	})
	return slices.Sorted(maps.Keys(d.replaced))
}

func (d *Driver) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.replaced, name)
}

// replace notes which version of a Node we write on.
func (d *Driver) replace(node *corev1.Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replaced[node.Name] = node.ResourceVersion
}

// serves says whether load balancers send connections to a Node. They send none to one with the
// label by which kubeadm keeps control plane Nodes out, whatever else they look for.
func (d *Driver) serves(node *corev1.Node) bool {
	_, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]
	return node.DeletionTimestamp.IsZero() && !excluded && d.mark.Owner(node) == Nobody &&
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

// edit changes those Nodes that are there, and writes those that change. Each is read live: whose
// mark it has is decided on what is there, and the write is refused if that changes.
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
			d.replace(node)
			errs = append(errs, d.nodes.Edit(ctx, node, change))
		}
	}
	return errors.Join(errs...)
}
