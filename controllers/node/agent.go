// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// agent gives the Node the ConfigMap with the programs to watch for, and the label that selects it for the agent's
// DaemonSet. The ConfigMap is the record that 5-Spot labelled the Node. It is created first, so that a crash between
// the writes loses nothing. Package installation removes both.
func (r *Reconciler) agent(ctx context.Context, s *scope) error {
	if !s.needsAgent() || r.Installs && s.installation() == nil && !r.Actuate.Suppresses() {
		return nil // The first result of the installation, which creates the Namespace, triggers a reconcile.
	}
	labelled := s.node.Labels[reclaimapi.AgentLabel] == reclaimapi.AgentLabelValue
	if labelled && s.configMap != nil && equality.Semantic.DeepEqual(s.configMap, s.filled(s.configMap)) {
		return nil
	}
	remote, err := r.Actuate.Remote(ctx, r.ClusterCache, s.key)
	if err != nil {
		return workload.IgnoreNotConnected(err) // A new connection triggers a reconcile.
	}
	if err = r.writeConfigMap(ctx, s, remote.For(s.intent("AgentConfig"))); err == nil {
		err = s.label(ctx, remote.For(s.intent("AgentLabel")))
	}
	switch {
	case workload.NotConnected(err):
		return nil
	case err == nil, actuate.IsSuppressed(err):
		return err
	}
	err = fmt.Errorf("node %s: %w", s.host.Node, err)
	if errors.Is(err, installed.ErrForeign) {
		r.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, v1alpha1.ReclaimAgentBlockedEvent, "InstallReclaimAgent", "%s", installed.Text(err, installed.Agent))
	}
	return err
}

// needsAgent reports whether an agent must run on the Node. During a reclaim, the Node does not change. A request that is
// refused starts none.
func (s *scope) needsAgent() bool {
	return s.node != nil && s.configMapErr == nil && s.node.DeletionTimestamp.IsZero() &&
		(!reclaimapi.Requested(s.node.Annotations) || s.refuses()) &&
		!s.scheduled.BeingReclaimed() && installed.OnNode(s.scheduled, s.machine) &&
		s.cluster != nil && s.cluster.DeletionTimestamp.IsZero()
}

// refuses reports whether requests from the Node are refused. Then its pods are not held, because its machine stays. An
// agent that exited with code 3 has released them itself.
func (s *scope) refuses() bool {
	return s.node != nil && s.machine != nil && (util.IsControlPlaneMachine(s.machine) || s.otherHost() != "")
}

// agentConfig returns the configuration of the agent on the Node.
func (s *scope) agentConfig() reclaimapi.Config {
	c := s.scheduled.Spec.AgentConfig()
	if s.refuses() {
		c.Hold = reclaimapi.HoldNone
	}
	return c
}

// installation returns the result of the installation in the Cluster, nil if it is unknown.
func (s *scope) installation() *metav1.Condition {
	if s.cluster == nil {
		return nil
	}
	return conditions.Get(s.cluster, v1alpha1.ReclaimAgentInstalledCondition)
}

// writeConfigMap creates or corrects the ConfigMap, unless it belongs to another writer. A rollout delays only more
// programs in an existing one: a new agent and the labels do not wait.
func (r *Reconciler) writeConfigMap(ctx context.Context, s *scope, write actuate.Action) error {
	if cm := s.configMap; cm != nil {
		if installed.PresenceOf(cm, s.key) == installed.Foreign {
			return installed.ForeignError("ConfigMap", cm.Name)
		}
		if err := r.stage(ctx, s); err != nil {
			return err
		}
		wanted := s.filled(cm)
		if s.staged {
			wanted.Data = map[string]string{reclaimapi.ConfigMapKey: reclaimapi.WithHold(cm.Data[reclaimapi.ConfigMapKey], s.agentConfig().Hold)}
		}
		return write.PatchLocked(ctx, wanted, cm)
	}
	cm := s.filled(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: reclaimapi.ConfigMapName(s.node.Name)}})
	// A plain create never overwrites an object of another writer. The cache has only objects of 5-Spot. A live read
	// shows whether 5-Spot made an object that exists.
	if err := write.Create(ctx, cm); !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := workload.Live(ctx, r.ClusterCache, s.key)
	if err != nil {
		return err
	}
	s.configMap = &corev1.ConfigMap{}
	if err := live.Get(ctx, client.ObjectKeyFromObject(cm), s.configMap); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", cm.Name, err)
	}
	return r.writeConfigMap(ctx, s, write)
}

// filled returns a copy of cm with the configuration of the agent on the Node. The Node owns the ConfigMap, so that
// garbage collection deletes it with the Node.
func (s *scope) filled(cm *corev1.ConfigMap) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	installed.Claim(cm, s.key)
	cm.Labels = labels.Merge(cm.Labels, labels.Set(installed.AgentLabels))
	cm.Data = map[string]string{reclaimapi.ConfigMapKey: s.agentConfig().Text()}
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.node.Name, UID: s.node.UID}}
	return cm
}

// label adds the agent's label to the Node. The patch has only this label, so that it never overwrites a change of
// another writer.
func (s *scope) label(ctx context.Context, write actuate.Action) error {
	before := s.node.DeepCopy()
	s.node.Labels = labels.Merge(s.node.Labels, map[string]string{reclaimapi.AgentLabel: reclaimapi.AgentLabelValue})
	if err := write.Patch(ctx, s.node, before); !actuate.Gone(err) {
		return err
	}
	return nil // The event of the Node's deletion triggers a reconcile.
}
