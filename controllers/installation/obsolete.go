// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// obsolete is a ConfigMap of 5-Spot for a Node that needs no agent.
type obsolete struct {
	configMap *corev1.ConfigMap
	// node is nil if there is no such Node.
	node *corev1.Node
	// scheduled is nil if the Node belongs to no ScheduledMachine any more.
	scheduled *v1alpha1.ScheduledMachine
}

// A claim is a ScheduledMachine on a Node. keep reports that the ConfigMap of the Node stays.
type claim struct {
	scheduled *v1alpha1.ScheduledMachine
	keep      bool
}

// observeConfigMaps finds 5-Spot's ConfigMaps for Nodes without an agent, and whether an agent may hold pods. The
// ConfigMap of a Node stays during a reclaim, a pause, under another manager, and while the agent reports that it holds
// pods.
func (r *Reconciler) observeConfigMaps(ctx context.Context, s *scope, machines []v1alpha1.ScheduledMachine) error {
	list := &corev1.ConfigMapList{}
	ours := client.MatchingLabels(labels.Merge(labels.Set{installed.ManagedByLabel: installed.ManagedBy}, labels.Set(installed.AgentLabels)))
	if err := s.reader.List(ctx, list, client.InNamespace(reclaimapi.Namespace), ours); err != nil || len(list.Items) == 0 {
		return wrap("listing ConfigMaps", err)
	}
	claims, err := r.claims(ctx, machines)
	if err != nil {
		return err
	}
	reported := false
	for i := range list.Items {
		cm := &list.Items[i]
		c, claimed := claims[cm.Name]
		if !c.keep && installed.PresenceOf(cm, s.key) != installed.Ours {
			continue
		}
		held, err := s.addConfigMap(ctx, cm, c, claimed)
		if err != nil {
			return err
		}
		reported = reported || held
	}
	if reported && !s.holds {
		s.holds, err = s.canHold(ctx)
	}
	return err
}

// addConfigMap adds what one ConfigMap means. held reports that the agent of its Node reports held pods.
func (s *scope) addConfigMap(ctx context.Context, cm *corev1.ConfigMap, c claim, claimed bool) (held bool, err error) {
	node, err := workload.Node(ctx, s.reader, installed.NodeOf(cm))
	if err != nil {
		return false, err
	}
	requested := false
	if node != nil {
		requested, held = reclaimapi.Requested(node.Annotations), reportsHeldPods(node)
	}
	if c.keep || claimed && (requested || held) {
		s.kept = true
	} else {
		s.obsolete = append(s.obsolete, obsolete{cm, node, c.scheduled})
	}
	s.holds = s.holds || reclaimapi.TextHasHold(cm.Data[reclaimapi.ConfigMapKey])
	return held, nil
}

// canHold reports whether the agents have the cgroup files of their hosts. A report of held pods does not give them
// these: each kubelet may annotate its own Node.
func (s *scope) canHold(ctx context.Context) (bool, error) {
	ds := &appsv1.DaemonSet{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: reclaimapi.Namespace, Name: "reclaim-agent"}, ds)
	return slices.ContainsFunc(ds.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && v.HostPath.Path == "/sys/fs/cgroup"
	}), wrap("reading the agent's DaemonSet", client.IgnoreNotFound(err))
}

// reportsHeldPods reports whether the agent of a Node holds pods, also after its configuration has no hold any more. It
// needs the cgroup files to release them.
func reportsHeldPods(node client.Object) bool {
	state, ok := reclaimapi.ParseHoldState(node.GetAnnotations()[reclaimapi.HoldAnnotation])
	return ok && state.Unavailable == ""
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// claims returns the claims on Nodes by the names of their ConfigMaps: the accepted Node of each Machine, the Node that
// a Machine reports and that is not accepted, and without a Machine the Node of the reclaim that is being served.
func (r *Reconciler) claims(ctx context.Context, machines []v1alpha1.ScheduledMachine) (map[string]claim, error) {
	claims := map[string]claim{}
	for i := range machines {
		sm := &machines[i]
		machine, err := r.Children.Machine(ctx, sm)
		if err != nil {
			return nil, err
		}
		host, err := r.Children.Host(ctx, sm, machine)
		if err != nil {
			return nil, err
		}
		request, reclaiming := sm.ReclaimRequest()
		name := host.Node
		switch {
		case machine == nil:
			name = request.Node
		case host.NodeRejected():
			name = host.Reported.Node
		}
		cm := reclaimapi.ConfigMapName(name)
		claims[cm] = claim{sm, claims[cm].keep || host.NodeRejected() || installed.OnNode(sm, machine) ||
			reclaiming || annotations.HasPaused(sm) || !workload.MatchesFilter(r.watchFilter, sm)}
	}
	return claims, nil
}

// removeAgent removes the agent's label from a Node, and then the ConfigMap. The ConfigMap is the record that 5-Spot
// labelled the Node. It is deleted last, so that a crash between the writes loses nothing. The patch has only this
// label, so that it never overwrites a change of another writer.
func (s *scope) removeAgent(ctx context.Context, o obsolete) error {
	if o.node != nil && o.node.Labels[reclaimapi.AgentLabel] == reclaimapi.AgentLabelValue {
		after := o.node.DeepCopy()
		delete(after.Labels, reclaimapi.AgentLabel)
		if err := s.write.For(s.intent("AgentLabel", o.scheduled)).Patch(ctx, after, o.node); err != nil && !actuate.Gone(err) {
			return fmt.Errorf("node %s: %w", o.node.Name, err)
		}
	}
	return s.write.For(s.intent("AgentConfig", o.scheduled)).Delete(ctx, o.configMap)
}
