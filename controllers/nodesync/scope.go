// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// use is whether a Cluster needs the agent.
type use int

const (
	// unused: no ScheduledMachine needs the agent.
	unused use = iota
	// used: a ScheduledMachine names programs to watch for.
	used
	// lingering: no ScheduledMachine needs the agent, but a held Node still has its ConfigMap.
	lingering
)

// scope holds what one reconcile reads.
type scope struct {
	key     client.ObjectKey
	cluster *clusterv1.Cluster
	use     use
	// guarded reports that the Cluster needs the guard: it has a ScheduledMachine, and there are manifests.
	guarded bool
	// now is the time of the connection.
	now time.Time
	// reader reads the workload cluster, from the cache if the Cluster uses a part. live always reads from its API
	// server.
	reader client.Reader
	live   client.Reader
	// write writes Nodes and ConfigMaps. installer writes the installation.
	write     *actuate.Actuator
	installer actuate.Action
	nodes     []*node
	// doubtful has the names of Nodes that a Machine reports and ingest rejected.
	doubtful []string
}

// useOf returns whether the Cluster needs a part.
func (s *scope) useOf(p part) use {
	switch {
	case p == agent:
		return s.use
	case s.guarded:
		return used
	default:
		return unused
	}
}

// intent returns the intent of a write for a Node; n is nil for the installation.
func (s *scope) intent(why string, n *node) actuate.Intent {
	i := actuate.Intent{Kind: audit.NodePatch, Why: why, At: s.now, Cluster: s.key}
	if n != nil && n.scheduled != nil {
		i.Machine = client.ObjectKeyFromObject(n.scheduled)
	}
	return i
}

// node is a Node that belongs, or belonged, to a ScheduledMachine.
type node struct {
	name string
	// scheduled is nil if the Node belongs to no ScheduledMachine any more.
	scheduled *v1alpha1.ScheduledMachine
	// machine is nil if there is none.
	machine *clusterv1.Machine
	// live is nil if there is no such Node.
	live *corev1.Node
	// configMap is nil if 5-Spot has no ConfigMap for the Node.
	configMap *corev1.ConfigMap
	// held reports that no write is allowed, because of a reclaim, a pause, or another manager.
	held bool
}

// observe returns nil if there is nothing to do.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) (*scope, error) {
	cluster, err := r.readCluster(ctx, key)
	if cluster == nil || err != nil {
		return nil, err
	}
	list := &v1alpha1.ScheduledMachineList{}
	// The list may have thousands of objects. They are only read, so it is not copied.
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{r.ClusterIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	s := &scope{key: key, cluster: cluster, guarded: len(list.Items) > 0 && len(r.Guard) > 0}
	for i := range list.Items {
		if uses(&list.Items[i]) {
			s.use = used
		}
	}
	if !r.concerns(s) {
		return nil, nil
	}
	if err := r.connect(ctx, s); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if err := r.observeNode(ctx, s, &list.Items[i]); err != nil {
			return nil, err
		}
	}
	return s, r.observeConfigMaps(ctx, s)
}

// concerns reports whether a Cluster needs a part, or may have an obsolete one.
func (r *Reconciler) concerns(s *scope) (concerned bool) {
	for _, p := range []part{agent, guard} {
		if s.useOf(p) != unused {
			r.memory.setClean(s.key, p, false)
			concerned = true
		}
		concerned = concerned || !r.memory.isClean(s.key, p)
	}
	return concerned
}

// connect reads through a cache if the Cluster uses a part. Otherwise it reads live: a few requests suffice to check
// that no obsolete object remains.
func (r *Reconciler) connect(ctx context.Context, s *scope) error {
	var err error
	if s.live, err = workload.Live(ctx, r.ClusterCache, s.key); err != nil {
		return err
	}
	if s.write, err = r.Actuate.Remote(ctx, r.ClusterCache, s.key); err != nil {
		return err
	}
	s.now = r.Clock.Now()
	s.installer = s.write.As(v1alpha1.InstallerFieldManager).For(s.intent("Agent", nil))
	if s.use == unused && !s.guarded {
		s.reader = s.live
		return nil
	}
	if s.reader, err = r.ClusterCache.GetReader(ctx, s.key); err != nil {
		return err
	}
	return r.watches.nodes(ctx, s.key)
}

// uses reports whether a ScheduledMachine needs the agent.
func uses(sm *v1alpha1.ScheduledMachine) bool {
	if reclaimapi.ConfigFor(sm.Spec.KillIfCommands).Inert() {
		return false
	}
	return sm.DeletionTimestamp.IsZero() || sm.BeingReclaimed()
}

// observeNode adds the Node of a ScheduledMachine: the accepted Node of its Machine. Without a Machine it adds the Node
// of the reclaim that is being served.
func (r *Reconciler) observeNode(ctx context.Context, s *scope, sm *v1alpha1.ScheduledMachine) error {
	machine, err := r.Children.Machine(ctx, sm)
	if err != nil {
		return err
	}
	request, reclaiming := sm.ReclaimRequest()
	host, err := r.Children.Host(ctx, sm, machine)
	if err != nil {
		return err
	}
	n := &node{scheduled: sm, machine: machine, name: request.Node}
	if machine != nil {
		n.name = host.Node
	}
	if host.NodeRejected() {
		s.doubtful = append(s.doubtful, host.Says.Node)
	}
	if n.name == "" {
		return nil
	}
	if n.live, err = workload.Node(ctx, s.reader, n.name); err != nil {
		return err
	}
	asked := n.live != nil && machine != nil && reclaimapi.Requested(n.live.Annotations)
	n.held = asked || reclaiming || annotations.HasPaused(sm) ||
		r.watchFilter != "" && !labels.HasWatchLabel(sm, r.watchFilter)
	s.nodes = append(s.nodes, n)
	return nil
}

// observeConfigMaps assigns 5-Spot's ConfigMaps to their Nodes. It adds a node for each ConfigMap without a
// ScheduledMachine.
func (r *Reconciler) observeConfigMaps(ctx context.Context, s *scope) error {
	list := &corev1.ConfigMapList{}
	if err := s.reader.List(ctx, list, client.InNamespace(reclaimapi.Namespace),
		client.MatchingLabels{managedByLabel: managedBy, componentLabel: component}); err != nil {
		return fmt.Errorf("listing ConfigMaps: %w", err)
	}
	byName := s.byConfigMap()
	for i := range list.Items {
		cm := &list.Items[i]
		n := byName[cm.Name]
		if n == nil && presenceOf(cm, s.key) == Ours {
			n = &node{name: nodeOf(cm)}
			var err error
			if n.live, err = workload.Node(ctx, s.reader, n.name); err != nil {
				return err
			}
			s.nodes = append(s.nodes, n)
		}
		if n != nil {
			n.configMap = cm
			if s.use == unused && n.held {
				s.use = lingering
			}
		}
	}
	return nil
}

// nodeOf returns the name of the Node of a ConfigMap. The name of a ConfigMap can be a hash.
func nodeOf(cm *corev1.ConfigMap) string {
	for _, owner := range cm.OwnerReferences {
		if reclaimapi.ConfigMapName(owner.Name) == cm.Name {
			return owner.Name
		}
	}
	return strings.TrimPrefix(cm.Name, reclaimapi.ConfigMapName(""))
}

// byConfigMap returns the Nodes by the names of their ConfigMaps. A doubtful Node is held: its objects do not change.
func (s *scope) byConfigMap() map[string]*node {
	by := map[string]*node{}
	for _, n := range s.nodes {
		by[reclaimapi.ConfigMapName(n.name)] = n
	}
	for _, name := range s.doubtful {
		if cm := reclaimapi.ConfigMapName(name); by[cm] == nil {
			by[cm] = &node{name: name, held: true}
		}
	}
	return by
}
