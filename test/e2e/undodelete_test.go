// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// undoRights are the rights on ScheduledMachines that undo-delete needs. fivespot-edit-role has them.
var undoRights = rbacv1.PolicyRule{
	APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"scheduledmachines"}, Verbs: []string{"get", "list", "create", "patch"},
}

// undoer returns a user with all rights that undo-delete and hold-departures need.
func (l *lab) undoer(name string) owner {
	l.t.Helper()
	return l.person(
		name, undoRights,
		rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"machines"}, Verbs: []string{"get", "patch"}},
		rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: []string{"patch"}},
	)
}

// fails runs the plugin, which must fail, and returns its errors.
func (o owner) fails(args ...string) string {
	o.l.t.Helper()
	args = append(args, "--kubeconfig", o.kubeconfig, "--namespace", o.l.Key.Namespace)
	var errs bytes.Buffer
	cmd := exec.CommandContext(timeout(o.l.t, patience), shared.Program("kubectl-5spot"), args...)
	cmd.Stderr = &errs
	if out, err := cmd.Output(); err == nil {
		o.l.t.Fatalf("kubectl 5spot %s must fail:\n%s", strings.Join(args, " "), out)
	}
	return errs.String()
}

// owned lists the objects whose owner references do not have exactly one ScheduledMachine, the one with this UID. The
// garbage collector and the manager change them.
func owned(ctx context.Context, by types.UID, objs ...client.Object) error {
	for _, obj := range objs {
		if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		var owners []types.UID
		for _, ref := range obj.GetOwnerReferences() {
			if ref.Kind == "ScheduledMachine" {
				owners = append(owners, ref.UID)
			}
		}
		if !slices.Equal(owners, []types.UID{by}) {
			return fmt.Errorf("%T %s has the owners %v, not %s", obj, obj.GetName(), owners, by)
		}
	}
	return nil
}

// TestADeletionIsUndone deletes ScheduledMachines while their departures are held, and undoes that with the plugin. The
// garbage collector is Kubernetes' own.
func TestADeletionIsUndone(t *testing.T) {
	t.Parallel()
	l := newLab(t, "undo")
	l.waitCollector()
	background, foreground := l.running("background", nil), l.running("foreground", nil)
	off := l.running("off", func(sm *v1alpha1.ScheduledMachine) {
		sm.Labels = map[string]string{"example.org/team": "blue"}
		sm.Annotations = map[string]string{"example.org/note": "kept"}
	})
	l.disable(off)
	l.waitPhase(off, disabled, "")
	all := []*v1alpha1.ScheduledMachine{background, foreground, off}
	pod, _ := l.runPinned(background, "undo-work")
	engineer, novice := l.undoer("undoer"), l.person("undo-novice", undoRights)
	engineer.run("hold-departures", l.Key.Name)

	var before []*v1alpha1.ScheduledMachine
	var families []family
	var nodes []*corev1.Node
	for _, sm := range all {
		before, families, nodes = append(before, sm.DeepCopy()), append(families, l.family(sm)), append(nodes, l.node(sm))
	}
	mark := l.mark()
	l.delete(background)
	l.delete(foreground, client.PropagationPolicy(metav1.DeletePropagationForeground))
	l.delete(off)
	for _, sm := range all {
		l.waitCondition(sm, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.DeparturesHeldReason)
	}
	dir := t.TempDir()
	wantInOrder(t, novice.fails("undo-delete", background.Name, "--backup-dir", dir), `cannot get resource "machines"`)
	wantInOrder(t, engineer.run("undo-delete", "--cluster", l.Key.Name, "--backup-dir", dir),
		background.Name+": its deletion is undone", foreground.Name+": its deletion is undone", off.Name+": its deletion is undone")
	wantInOrder(t, engineer.run("release-departures", l.Key.Name), "released")

	l.waitPhase(background, active, metav1.ConditionTrue)
	l.waitPhase(foreground, active, metav1.ConditionTrue)
	l.waitPhase(off, disabled, "")
	for i, sm := range all {
		if sm.UID == before[i].UID {
			t.Errorf("%s must be a new object", sm.Name)
		}
		if diff := cmp.Diff(before[i].Spec, sm.Spec); diff != "" {
			t.Errorf("%s: spec: -before, +after:\n%s", sm.Name, diff)
		}
		if diff := cmp.Diff(before[i].Labels, sm.Labels); diff != "" {
			t.Errorf("%s: labels: -before, +after:\n%s", sm.Name, diff)
		}
		if diff := cmp.Diff(before[i].Annotations, sm.Annotations); diff != "" {
			t.Errorf("%s: annotations: -before, +after:\n%s", sm.Name, diff)
		}
		if diff := cmp.Diff(specManagers(before[i]), specManagers(sm)); diff != "" {
			t.Errorf("%s: field managers: -before, +after:\n%s", sm.Name, diff)
		}
		l.until(func(ctx context.Context) error { return owned(ctx, sm.UID, familyOf(sm).objects()...) })
	}
	holds(t, 3*shortly, func(ctx context.Context) error {
		for _, f := range families {
			if err := unchanged(ctx, f.objects()...); err != nil {
				return err
			}
		}
		return nil
	})
	for i, sm := range all {
		if node := l.node(sm); node.UID != nodes[i].UID || node.Spec.Unschedulable {
			t.Errorf("Node %s must be the same, and take pods: %+v", node.Name, node.Spec)
		}
	}
	l.specs().WantUntouched(pod)
	l.wantNoEviction(pod)
	for _, e := range l.audit(shared.Management)[mark:] {
		if e.Verb == "delete" && e.ObjectRef != nil && e.ObjectRef.Namespace == l.Key.Namespace && e.ObjectRef.Resource != "scheduledmachines" && isWrite(e) {
			t.Errorf("no child may be deleted: %s", describe(e))
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("backups that are left: %v, %v", left, err)
	}
}

// specManagers returns the field managers that wrote the object, and not only its status.
func specManagers(sm *v1alpha1.ScheduledMachine) []string {
	var names []string
	for _, f := range sm.ManagedFields {
		if f.Subresource == "" {
			names = append(names, f.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestAnUndoContinuesFromItsBackup has an undo that ends while the object is absent: another program's finalizer keeps
// the object until undo-delete has given up.
func TestAnUndoContinuesFromItsBackup(t *testing.T) {
	t.Parallel()
	const finalizer = "example.org/cleanup"
	l := newLab(t, "undocut")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Finalizers = []string{finalizer} })
	before, node, engineer, dir := l.family(sm), l.node(sm), l.undoer("undocut"), t.TempDir()
	engineer.run("hold-departures", l.Key.Name)
	l.delete(sm)
	wantInOrder(t, engineer.fails("undo-delete", sm.Name, "--backup-dir", dir, "--timeout", "5s"), "because of the finalizers of other programs: "+finalizer)
	l.edit(sm, func() { sm.Finalizers = removed(sm.Finalizers, finalizer) })
	l.waitGone(sm)
	stays := func(ctx context.Context) error { return unchanged(ctx, before.objects()...) }
	holds(t, 2*shortly, stays)
	wantInOrder(t, engineer.run("undo-delete", "--cluster", l.Key.Name, "--backup-dir", dir), "created again from the backup")
	engineer.run("release-departures", l.Key.Name)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	holds(t, 2*shortly, stays)
	if now := l.node(sm); now.UID != node.UID || now.Spec.Unschedulable {
		t.Errorf("Node %s must be the same, and take pods: %+v", now.Name, now.Spec)
	}
	l.until(func(ctx context.Context) error { return owned(ctx, sm.UID, before.objects()...) })
}
