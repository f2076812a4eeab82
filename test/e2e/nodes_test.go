// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// askBack writes a request on a Node, as the agent does.
func (l *lab) askBack(node *corev1.Node, pattern string) {
	l.t.Helper()
	l.specs().AskBack(node, pattern)
}

// annotate adds annotations to a Node of the workload cluster.
func (l *lab) annotate(node *corev1.Node, annotations map[string]string) {
	l.t.Helper()
	l.specs().Annotate(node, annotations)
}

// waitCleared waits until a remaining Node has no request any more.
func (l *lab) waitCleared(node *corev1.Node) {
	l.t.Helper()
	l.specs().WaitCleared(node)
}

// ownNode creates a Node that is registered before its Machine exists, and is not deleted with it: a machine that was
// installed once and has its own kubelet. It is the Node of the ScheduledMachine with that name.
func (l *lab) ownNode(name string) *corev1.Node {
	l.t.Helper()
	machine := l.Key.Name + "-" + name
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine + "-machine"},
		Spec:       corev1.NodeSpec{ProviderID: "plane://" + l.Key.Namespace + "/" + machine + "-infra"},
	}
	l.must(workload.Client.Create(timeout(l.t, patience), node))
	return node
}

// keepNode makes a Node outlive its Machine.
func (l *lab) keepNode(node *corev1.Node) {
	l.t.Helper()
	l.specs().KeepNode(node)
}

// wantReclaimed waits for the end of an emergency reclaim, and checks its documented result.
func (l *lab) wantReclaimed(sm *v1alpha1.ScheduledMachine, pattern string) {
	l.t.Helper()
	l.specs().WantReclaimed(sm, pattern)
	l.nothingLeft(sm)
}
