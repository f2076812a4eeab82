// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// A tool applies the same manifests repeatedly, including schedule.enabled.
type tool struct {
	l    *lab
	args []string
	by   string // the writer as people see it
}

// tools are Flux and Argo CD with server-side apply, and kubectl and Argo CD with client-side apply.
var tools = map[string]tool{
	"gitopsssa":  {args: []string{"apply", "--server-side", "--force-conflicts", "--field-manager=kustomize-controller"}, by: "kustomize-controller by server-side apply"},
	"gitops3way": {args: []string{"apply", "--field-manager=argocd-controller"}, by: "argocd-controller"},
}

// manifest is a machine's manifest in Git.
func (g tool) manifest(name string, policy v1alpha1.ResumePolicy) (*v1alpha1.ScheduledMachine, string) {
	g.l.t.Helper()
	sm := g.l.scheduledMachine(name, infrav1.PlaneMachineSpec{})
	sm.APIVersion, sm.Kind = v1alpha1.GroupVersion.String(), "ScheduledMachine"
	sm.Spec.Schedule.Enabled, sm.Spec.ResumeAfterReclaim = new(true), policy
	text, err := json.Marshal(sm)
	g.l.must(err)
	return sm, string(text)
}

// apply applies a manifest, and returns the warnings.
func (g tool) apply(manifest string) string {
	g.l.t.Helper()
	_, err := shared.Management.KubectlInput(timeout(g.l.t, patience), manifest, append(slices.Clone(g.args), "--warnings-as-errors", "-f", "-")...)
	if err == nil {
		return ""
	}
	if !strings.Contains(err.Error(), "Warning:") {
		g.l.t.Fatal(err)
	}
	return err.Error()
}

// TestGitOpsAppliesMachinesThatTheirOwnersTookBack has a tool that corrects its desired state every few minutes.
func TestGitOpsAppliesMachinesThatTheirOwnersTookBack(t *testing.T) {
	t.Parallel()
	for name, g := range tools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.l = newLab(t, name)
			l, owner := g.l, g.l.owner(name)
			enable, enabled := g.manifest("enable", v1alpha1.ResumeOnEnable)
			resume, resumed := g.manifest("resume", v1alpha1.ResumeOnResume)
			if w := g.apply(enabled) + g.apply(resumed); w != "" {
				t.Errorf("nobody has taken them back: %s", w)
			}
			var histories []history
			for _, sm := range []*v1alpha1.ScheduledMachine{enable, resume} {
				l.waitPhase(sm, active, metav1.ConditionTrue)
				histories = append(histories, l.follow(sm))
				owner.run("give-back", sm.Name, "--wait")
			}

			warned := g.apply(enabled)
			for _, part := range []string{"spec.schedule.enabled", "resumeAfterReclaim: OnResume", "docs/gitops.md"} {
				if !strings.Contains(warned, part) {
					t.Errorf("the tool must be warned of %q: %q", part, warned)
				}
			}
			l.waitPhase(enable, active, metav1.ConditionTrue)
			l.waitCondition(enable, v1alpha1.LentAgainCondition, metav1.ConditionTrue, v1alpha1.EnabledByToolReason, g.by+" turned the schedule on")
			l.wantEvents(enable, "Warning LentAgain According to metadata.managedFields, "+g.by)
			wantInOrder(t, owner.run("why", enable.Name), "Running: it is lent", "Note:", g.by+" turned the schedule on")
			g.apply(enabled)

			for range 3 {
				if w := g.apply(resumed); w != "" {
					t.Errorf("nothing lends it: %s", w)
				}
				l.waitFor(resume, func() error { return seen(resume) })
			}
			l.waitPhase(resume, disabled, metav1.ConditionTrue)
			l.wantNothing(resume)
			wantInOrder(t, owner.run("why", resume.Name), "Returned: it was given back to its owner, and it stays out of the cluster until it is resumed", "resume "+resume.Name)
			owner.run("resume", resume.Name)
			l.waitPhase(resume, active, metav1.ConditionTrue)
			g.apply(resumed)

			for i, sm := range []*v1alpha1.ScheduledMachine{enable, resume} {
				histories[i].want(l, active, emergency, disabled, pending, active)
				l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(sm), sm))
				if again := condition(sm, v1alpha1.LentAgainCondition).Status == metav1.ConditionTrue; again != (sm == enable) {
					t.Errorf("%s: lent again by a tool: %t", sm.Name, again)
				}
			}
		})
	}
}

// seen returns an error if the controller has not observed the latest spec.
func seen(sm *v1alpha1.ScheduledMachine) error {
	if sm.Status.ObservedGeneration < sm.Generation {
		return fmt.Errorf("generation %d is seen, not %d", sm.Status.ObservedGeneration, sm.Generation)
	}
	return nil
}

// TestADeletedObjectIsMadeAgainWhileItsOwnerHasTheMachine has a tool that prunes it, and then creates it from Git
// again.
func TestADeletedObjectIsMadeAgainWhileItsOwnerHasTheMachine(t *testing.T) {
	long(t)
	t.Parallel()
	g := tools["gitopsssa"]
	g.l = newLab(t, "gitopsagain")
	l, owner := g.l, g.l.owner("gitopsagain")
	sm, manifest := g.manifest("again", v1alpha1.ResumeOnEnable)
	g.apply(manifest)
	l.waitPhase(sm, active, metav1.ConditionTrue)
	owner.run("give-back", sm.Name, "--wait")
	l.delete(sm)
	l.waitGone(sm)
	l.nothingLeft(sm)
	record := &v1alpha1.ReclaimedMachine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name}}
	l.must(shared.Management.Client.Get(timeout(t, patience), client.ObjectKeyFromObject(record), record))

	again, manifest := g.manifest("again", v1alpha1.ResumeOnEnable)
	g.apply(manifest)
	l.waitPhase(again, disabled, metav1.ConditionTrue)
	l.waitGone(record) // By then the record is on the new object.
	l.wantNothing(again)
	wantInOrder(t, owner.run("why", again.Name), "Returned", "resume "+again.Name)
	owner.run("resume", again.Name)
	l.waitPhase(again, active, metav1.ConditionTrue)
}
