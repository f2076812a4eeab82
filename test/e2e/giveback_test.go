// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestAPersonGivesTheMachineBackAndLendsItAgain runs the released plugin's give-back and resume, as a user without
// access to the workload cluster.
func TestAPersonGivesTheMachineBackAndLendsItAgain(t *testing.T) {
	t.Parallel()
	l := newLab(t, "giveback")
	sm := l.running("box", nil)
	h := l.follow(sm)
	pod, _ := l.runPinned(sm, "giveback-work")
	node, before := l.node(sm), l.family(sm)
	owner := l.owner("giveback-owner")

	out := owner.run("give-back", sm.Name, "--reason", "Ada needs it", "--wait")
	wantInOrder(t, out, sm.Name+": asked.", "given back: the schedule is off")
	l.waitGone(before.objects()...)
	l.waitPhase(sm, disabled, metav1.ConditionTrue)
	if sm.ScheduleEnabled() {
		t.Error("the schedule must be off, or the machine comes back while its owner uses it")
	}
	l.wantNothing(sm)
	l.wantNoEviction(pod)
	l.wantEvents(sm, "Warning EmergencyReclaim Emergency reclaim requested", "asked by a person: Ada needs it",
		"Warning EmergencyReclaimDisabledSchedule")

	version := sm.ResourceVersion
	wantInOrder(t, owner.run("give-back", sm.Name), "nothing to give back")
	l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(sm), sm))
	if sm.ResourceVersion != version {
		t.Error("asking again for what was given back must write nothing")
	}

	var why struct {
		State   string
		Request struct{ By, Reason, Node string }
	}
	l.must(json.Unmarshal([]byte(owner.run("why", sm.Name, "-o", "json")), &why))
	if why.State != "Returned" || why.Request.By != "person" || why.Request.Reason != "asked by a person: Ada needs it" || why.Request.Node != node.Name {
		t.Errorf("why must tell who took the machine, and from where: %+v", why)
	}

	wantInOrder(t, owner.run("resume", sm.Name), "on again", "the machine joins now")
	l.waitPhase(sm, active, metav1.ConditionTrue)
	if _, ok := sm.Annotations[v1alpha1.ReclaimedAnnotation]; ok {
		t.Error("a machine that is lent again must not say that it was given back")
	}
	wantInOrder(t, owner.run("why", sm.Name), "Running: it is lent")
	h.want(l, active, emergency, disabled, pending, active)
}

// An owner is a person who may read and patch ScheduledMachines, and nothing else.
type owner struct {
	l          *lab
	kubeconfig string
}

func (l *lab) owner(name string) owner {
	l.t.Helper()
	return l.person(name, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"scheduledmachines"}, Verbs: []string{"get", "list", "watch", "patch"},
	})
}

// person returns a user of the plugin with these permissions in the namespace.
func (l *lab) person(name string, rights ...rbacv1.PolicyRule) owner {
	l.t.Helper()
	user, err := shared.Management.User(name)
	l.must(err)
	meta := metav1.ObjectMeta{Namespace: l.Key.Namespace, Name: name}
	l.create(&rbacv1.Role{ObjectMeta: meta, Rules: rights})
	l.create(&rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	})
	return owner{l, user.Kubeconfig}
}

// run runs the plugin and returns its output.
func (o owner) run(args ...string) string {
	o.l.t.Helper()
	args = append(args, "--kubeconfig", o.kubeconfig, "--namespace", o.l.Key.Namespace)
	cmd := exec.CommandContext(timeout(o.l.t, longPatience), shared.Program("kubectl-5spot"), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		o.l.t.Fatalf("kubectl 5spot %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

// wantInOrder checks that texts follow one another in out.
func wantInOrder(t *testing.T, out string, texts ...string) {
	t.Helper()
	rest := out
	for _, text := range texts {
		var ok bool
		if _, rest, ok = strings.Cut(rest, text); !ok {
			t.Errorf("%q does not come, or not in its turn, in:\n%s", text, out)
			return
		}
	}
}
