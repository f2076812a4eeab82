// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// syncAgent reconciles the agent's label on a Node, and its ConfigMap.
func (r *Reconciler) syncAgent(ctx context.Context, s *scope, n *node) error {
	for _, w := range DecideNode(s.nodeFacts(n)) {
		if err := s.carryOut(ctx, n, w); err != nil {
			return err
		}
	}
	return nil
}

// nodeFacts converts the observed objects to the facts of the decision, which has no Kubernetes types.
func (s *scope) nodeFacts(n *node) NodeFacts {
	f := NodeFacts{Wanted: n.wantsAgent(), Held: n.held}
	if n.live != nil {
		f.Exists = true
		f.Labelled = n.live.Labels[reclaimapi.AgentLabel] == reclaimapi.AgentLabelValue
	}
	if n.configMap != nil {
		f.ConfigMap = presenceOf(n.configMap, s.key)
		f.Current = f.Wanted && f.Exists && equality.Semantic.DeepEqual(n.configMap, s.filled(n.configMap, n))
	}
	return f
}

// wantsAgent reports whether an agent must run on the Node. The spec names programs to watch for, and neither the
// ScheduledMachine nor the Machine nor the Node is being deleted.
func (n *node) wantsAgent() bool {
	return n.scheduled != nil && n.scheduled.DeletionTimestamp.IsZero() && uses(n.scheduled) &&
		n.machine != nil && n.machine.DeletionTimestamp.IsZero() &&
		(n.live == nil || n.live.DeletionTimestamp.IsZero())
}

func (s *scope) carryOut(ctx context.Context, n *node, w Write) error {
	switch w {
	case MakeConfigMap:
		return s.makeConfigMap(ctx, n)
	case MendConfigMap:
		return s.write.For(s.intent("AgentConfig", n)).PatchLocked(ctx, s.filled(n.configMap, n), n.configMap)
	case DeleteConfigMap:
		return s.write.For(s.intent("AgentConfig", n)).Delete(ctx, n.configMap)
	case AddLabel:
		return s.label(ctx, n, func(labels map[string]string) { labels[reclaimapi.AgentLabel] = reclaimapi.AgentLabelValue })
	case DropLabel:
		return s.label(ctx, n, func(labels map[string]string) { delete(labels, reclaimapi.AgentLabel) })
	case RefuseConfigMap:
		return foreign("ConfigMap", reclaimapi.ConfigMapName(n.name))
	default:
		return fmt.Errorf("unknown write %q", w)
	}
}

// label changes the agent's label of a Node. The patch has only this label, so that it never overwrites a change of
// another writer.
func (s *scope) label(ctx context.Context, n *node, change func(map[string]string)) error {
	after := n.live.DeepCopy()
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	change(after.Labels)
	err := s.write.For(s.intent("AgentLabel", n)).Patch(ctx, after, n.live, client.FieldOwner(v1alpha1.FieldManager))
	if err != nil && !actuate.Gone(err) {
		return err
	}
	return nil
}

// makeConfigMap creates the ConfigMap with a plain create, which never overwrites an object of another writer. The
// cache has only objects of 5-Spot. If the create fails with AlreadyExists, a live read shows whether 5-Spot made it.
func (s *scope) makeConfigMap(ctx context.Context, n *node) error {
	cm := s.filled(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: reclaimapi.Namespace, Name: reclaimapi.ConfigMapName(n.name),
	}}, n)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cm)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	write := s.write.For(s.intent("AgentConfig", n))
	err = write.Create(ctx, u)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live := &corev1.ConfigMap{}
	if err := s.live.Get(ctx, client.ObjectKeyFromObject(cm), live); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", cm.Name, err)
	}
	if presenceOf(live, s.key) == Foreign {
		return foreign("ConfigMap", cm.Name)
	}
	return write.PatchLocked(ctx, s.filled(live, n), live)
}

// filled returns a copy of cm with the configuration of the agent on a Node. The Node owns the ConfigMap, so that
// garbage collection deletes it with the Node.
func (s *scope) filled(cm *corev1.ConfigMap, n *node) *corev1.ConfigMap {
	cm = cm.DeepCopy()
	claim(cm, s.key)
	maps.Copy(cm.Labels, map[string]string{nameLabel: name, componentLabel: component})
	cm.Data = map[string]string{reclaimapi.ConfigMapKey: reclaimapi.ConfigFor(n.scheduled.Spec.KillIfCommands).Text()}
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.live.Name, UID: n.live.UID}}
	return cm
}
