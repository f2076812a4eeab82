// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// scope holds what one reconcile reads.
type scope struct {
	key     client.ObjectKey
	cluster *clusterv1.Cluster
	// used reports that a ScheduledMachine of the Cluster needs the agent. guarded reports that the Cluster needs the
	// guard: it has a ScheduledMachine, and there are manifests.
	used, guarded bool
	// holds reports that a ScheduledMachine of the Cluster has a reclaimHold, or that an agent may still hold pods.
	holds bool
	// kept reports that a Node has an agent, or may need it again. The agent is not removed then.
	kept     bool
	obsolete []obsolete
	// now is the time of the connection.
	now time.Time
	// reader reads the workload cluster, from the cache if the Cluster uses a part. live always reads from its API
	// server.
	reader client.Reader
	live   client.Reader
	// write writes Nodes and ConfigMaps. installer writes the installation.
	write     *actuate.Actuator
	installer actuate.Action
	state     *clusterState
}

// needs reports whether the Cluster needs a part.
func (s *scope) needs(p installed.Part) bool {
	return p == installed.Agent && s.used || p == installed.Guard && s.guarded
}

// done reports whether a part has to be removed, or is.
func (s *scope) done(p installed.Part) bool {
	return !s.needs(p) && (p != installed.Agent || !s.kept)
}

// intent returns the intent of a write for the Node of a ScheduledMachine; sm is nil for the installation.
func (s *scope) intent(why string, sm *v1alpha1.ScheduledMachine) actuate.Intent {
	i := actuate.Intent{Kind: audit.NodePatch, Why: why, At: s.now, Cluster: s.key}
	if sm != nil {
		i.Machine = client.ObjectKeyFromObject(sm)
	}
	return i
}

// observe returns nil if there is nothing to do. If the workload cluster cannot be read, it returns the scope, too.
func (r *Reconciler) observe(ctx context.Context, cluster *clusterv1.Cluster) (*scope, error) {
	key := client.ObjectKeyFromObject(cluster)
	list := &v1alpha1.ScheduledMachineList{}
	// The list may have thousands of objects. They are only read, so it is not copied.
	if err := r.Reader.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{wake.ClusterIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing ScheduledMachines: %w", err)
	}
	s := &scope{key: key, cluster: cluster, guarded: len(list.Items) > 0 && len(r.Guard) > 0, state: r.stateOf(key)}
	for i := range list.Items {
		uses := installed.Uses(&list.Items[i])
		s.used = s.used || uses
		s.holds = s.holds || uses && list.Items[i].Spec.HoldsPods()
	}
	concerned := false
	for _, p := range []installed.Part{installed.Agent, installed.Guard} {
		if s.needs(p) {
			delete(s.state.clean, p)
		}
		concerned = concerned || !s.state.clean[p]
	}
	if !concerned {
		return nil, nil
	}
	if err := r.connect(ctx, s); err != nil {
		return s, err
	}
	if err := r.observeConfigMaps(ctx, s, list.Items); err != nil {
		return s, err
	}
	if s.state.holds != s.holds { // The objects have to be compared with the other manifests.
		s.state.forget(installed.Agent)
		s.state.holds = s.holds
	}
	return s, nil
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
	if !s.used && !s.guarded {
		s.reader = s.live
		return nil
	}
	if s.reader, err = r.ClusterCache.GetReader(ctx, s.key); err != nil {
		return err
	}
	return r.watchNodes(ctx, s.key)
}
