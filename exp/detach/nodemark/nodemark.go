// SPDX-License-Identifier: Apache-2.0

// Package nodemark is the Driver for load balancers that select Nodes by a mark on the Node itself, such as a label or
// a taint. To drain a Node, the Driver sets the mark, and an annotation with the time, in one patch. It removes only
// marks with that annotation. Such load balancers do not report connections, so a Node counts as drained after a fixed
// time.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/util"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// every is the interval between two reads. A read costs one list from the cache for all Nodes, and a live read of each
// Node whose last write the cache does not show yet.
const every = 5 * time.Second

// Nodes reads and writes the Nodes of the workload cluster.
type Nodes interface {
	// Get reads a Node live. It returns a NotFound error if the Node does not exist.
	Get(ctx context.Context, name string) (*corev1.Node, error)
	// List returns all Nodes from a cache, which may be late.
	List(ctx context.Context) ([]corev1.Node, error)
	// Edit applies change to a Node that Get returned, in one patch. It returns a conflict if the Node has changed in
	// between.
	Edit(ctx context.Context, node *corev1.Node, change func(*corev1.Node)) error
}

// Owner identifies which party marked a Node.
type Owner int

const (
	// Unmarked means that the Node has no mark.
	Unmarked Owner = iota
	// MarkedByOthers means that another party set the mark.
	MarkedByOthers
	// MarkedByUs means that 5-Spot set the mark.
	MarkedByUs
)

// Mark describes the mark that the load balancers check.
type Mark struct {
	// Annotation is the annotation with the time at which 5-Spot set the mark.
	Annotation string
	// Owner returns which party marked the Node.
	Owner func(*corev1.Node) Owner
	// Add sets the mark on an unmarked Node.
	Add func(*corev1.Node)
	// Remove removes 5-Spot's mark, and nothing else.
	Remove func(*corev1.Node)
	// Volatile means that other programs may remove 5-Spot's mark.
	Volatile bool
}

// Driver is the balancer.Driver for a Mark. Its only state is the list of Nodes that it wrote and that the cache may
// still show in their old version.
//
// The Driver reads such a Node live, because the cached version would mislead. A Node that was just marked would look
// unmarked: its membership would leave the record, and the mark would stay forever. A Node whose mark was just removed
// would look as if it was marked long ago, and a departure would not wait for its load balancers.
//
// Any other Node may be read late from the cache, as between two reads. A write always reads the Node live. A new
// Driver has an empty list: since the LoadBalancer changed, or the manager started, the cache has caught up.
type Driver struct {
	nodes Nodes
	clock clock.PassiveClock
	mark  Mark
	wait  time.Duration

	mu sync.Mutex
	// replaced holds the resourceVersion that each of 5-Spot's writes replaced, by Node name. Each write is locked on
	// it, so every later version contains the write. An entry stays after a failed write, because the API server may
	// have carried it out.
	replaced map[string]string
}

var _ balancer.Driver = &Driver{}

// New returns a Driver. A Node counts as drained when wait has passed since it was marked.
func New(nodes Nodes, c clock.PassiveClock, mark Mark, wait time.Duration) *Driver {
	return &Driver{nodes: nodes, clock: c, mark: mark, wait: wait, replaced: map[string]string{}}
}

// Every implements balancer.Driver.
func (*Driver) Every() time.Duration { return every }

// Volatile implements balancer.Driver.
func (d *Driver) Volatile() bool { return d.mark.Volatile }

// Discover implements balancer.Driver. A Node that exists has exactly one membership.
func (d *Driver) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	found, err := d.get(ctx, node.Name)
	if err != nil || found == nil {
		return nil, err
	}
	return []balancer.Membership{{Member: node.Name}}, nil
}

// Elsewhere implements balancer.Driver. It is always false, because the mark is on the Node itself.
func (*Driver) Elsewhere(balancer.Node, balancer.Membership) bool { return false }

// get reads a Node live, nil if it does not exist.
func (d *Driver) get(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := d.nodes.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// Status implements balancer.Driver.
func (d *Driver) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	nodes, err := d.readNodes(ctx)
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

// readNodes returns all Nodes by name. It reads live those whose last write the cache does not show yet.
func (d *Driver) readNodes(ctx context.Context) (map[string]*corev1.Node, error) {
	list, err := d.nodes.List(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]*corev1.Node, len(list))
	for i := range list {
		nodes[list[i].Name] = &list[i]
	}
	for _, name := range d.outdatedInCache(nodes) {
		node, err := d.get(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case node == nil:
			delete(nodes, name)
			d.mu.Lock()
			delete(d.replaced, name)
			d.mu.Unlock()
		default:
			nodes[name] = node
		}
	}
	return nodes, nil
}

// outdatedInCache returns the names of the Nodes whose last write the cache may not show yet.
func (d *Driver) outdatedInCache(cached map[string]*corev1.Node) []string {
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

// serves reports whether load balancers send connections to the Node. They never send any to a Node with the label by
// which kubeadm excludes control plane Nodes.
func (d *Driver) serves(node *corev1.Node) bool {
	excluded := metav1.HasLabel(node.ObjectMeta, corev1.LabelNodeExcludeBalancers)
	return node.DeletionTimestamp.IsZero() && !excluded && d.mark.Owner(node) == Unmarked && util.IsNodeReady(node)
}

func (d *Driver) state(node *corev1.Node) balancer.State {
	if node == nil {
		return balancer.Absent
	}
	switch d.mark.Owner(node) {
	case Unmarked:
		return balancer.Attached
	case MarkedByOthers:
		return balancer.Disabled
	default: // MarkedByUs
		if since, known := d.since(node); known && !d.clock.Now().Before(since.Add(d.wait)) {
			return balancer.Drained
		}
		return balancer.Draining
	}
}

// since returns when 5-Spot marked the Node. A time in the future is not known: a clock is wrong, possibly by years.
func (d *Driver) since(node *corev1.Node) (since time.Time, known bool) {
	since, err := time.Parse(time.RFC3339, node.Annotations[d.mark.Annotation])
	return since, err == nil && !since.After(d.clock.Now())
}

// Drain implements balancer.Driver. A Node that lost its mark is marked again, and the wait starts anew, because the
// load balancer may have sent connections meanwhile.
func (d *Driver) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return d.edit(ctx, memberships, func(node *corev1.Node) {
		owner := d.mark.Owner(node)
		if _, known := d.since(node); owner == MarkedByOthers || owner == MarkedByUs && known {
			return
		}
		if owner == Unmarked {
			d.mark.Add(node)
		}
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, d.mark.Annotation, d.clock.Now().UTC().Format(time.RFC3339))
	})
}

// Restore implements balancer.Driver.
func (d *Driver) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return d.edit(ctx, memberships, func(node *corev1.Node) {
		if d.mark.Owner(node) == MarkedByUs {
			d.mark.Remove(node)
		}
		delete(node.Annotations, d.mark.Annotation)
	})
}

// edit applies change to each existing Node and patches the ones that differ. It reads each Node live, so that the
// owner of the mark is current; the patch fails if the Node changes in between.
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
			d.mu.Lock()
			d.replaced[node.Name] = node.ResourceVersion
			d.mu.Unlock()
			errs = append(errs, d.nodes.Edit(ctx, node, change))
		}
	}
	return errors.Join(errs...)
}
