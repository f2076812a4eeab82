// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestInstallUpgradeRemove installs, upgrades and removes 5-Spot. A running machine must not be affected.
func TestInstallUpgradeRemove(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	u := newUser(ctx, t, shared)
	u.certManager()
	described := u.run(shared.Bin("clusterctl"), "generate", "provider", "--addon", "5spot:"+first, "--describe")
	for _, want := range []string{"AddonProvider", first, "5spot-system", "FIVESPOT_LOG_LEVEL", mirror} {
		if !strings.Contains(described, want) {
			t.Errorf("the release does not describe %s:\n%s", want, described)
		}
	}
	u.run(shared.Bin("clusterctl"), "init", "--core", "cluster-api:v1.14.2", "--bootstrap", "-", "--control-plane", "-")
	u.must(v1alpha1.AddToScheme(shared.Management.Client.Scheme()))
	u.must(shared.StartComponents(ctx, plane.Options{Components: []plane.Component{plane.Core, plane.Infrastructure}}))
	if out := u.follow("README.md", "Install"); !strings.Contains(out, deploymentKey.Name) {
		t.Errorf("the commands do not show the Deployment:\n%s", out)
	}
	manager := u.manager(ctx, first)
	w, err := shared.NewWorkload(ctx, plane.WorkloadOptions{Name: "lab", Namespace: "lab"})
	u.must(err)
	s := &system.System{Plane: shared}
	sm := system.ScheduledMachine(w, "box", infrav1.PlaneMachineSpec{})
	u.must(shared.Management.Client.Create(ctx, sm))
	u.must(s.WaitPhase(ctx, sm, v1alpha1.PhaseActive, metav1.ConditionTrue))
	before := u.state(ctx, sm)
	tree := u.run(shared.Bin("clusterctl"), "describe", "cluster", "lab", "-n", "lab", "--show-conditions", "Machine/"+before.machine.Name)
	for _, want := range []string{before.machine.Name, v1alpha1.MachineScheduledCondition, "Current time is within schedule"} {
		if !strings.Contains(tree, want) {
			t.Errorf("clusterctl does not show %s:\n%s", want, tree)
		}
	}

	// The Deployments of both versions are deleted, and so is the manager.
	u.must(manager.Stop())
	if out := u.follow("docs/install.md", "Upgrade"); !strings.Contains(out, second) {
		t.Errorf("the plan does not show %s:\n%s", second, out)
	}
	before.mustEqual(t, u.state(ctx, sm))
	u.write(u.config(), u.read(u.config())+"FIVESPOT_LOG_LEVEL: \"4\"\n")
	u.run(shared.Bin("clusterctl"), "upgrade", "apply", "--addon", "5spot:"+second)
	if args := u.deployment(ctx, deploymentKey.Name).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--v=4") {
		t.Errorf("an upgrade to the installed version does not set a variable of clusterctl.yaml: %v", args)
	}
	manager = u.manager(ctx, second)
	u.alive(ctx, sm)
	before.mustEqual(t, u.state(ctx, sm))

	u.must(manager.Stop())
	u.follow("docs/install.md", "Remove")
	if err := shared.Management.Client.Get(ctx, deploymentKey, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment is still there: %v", err)
	}
	if err := shared.Management.Client.Get(ctx, client.ObjectKey{Name: webhookName}, &admissionv1.ValidatingWebhookConfiguration{}); !apierrors.IsNotFound(err) {
		t.Errorf("the webhook is still there: %v", err)
	}
	u.follow("docs/install.md", "Keep the machines")
	now := u.state(ctx, sm)
	before.mustEqual(t, now)
	for name := range now.machine.Annotations {
		if strings.Contains(name, ".delete.hook.") {
			t.Errorf("the Machine has the hook %s, which no controller removes", name)
		}
	}

	u.follow("docs/install.md", "Init")
	manager = u.manager(ctx, first)
	u.alive(ctx, sm)
	before.mustEqual(t, u.state(ctx, sm))
	u.must(shared.Management.Client.Delete(ctx, sm))
	u.must(shared.Management.WaitGone(ctx, sm))

	u.must(manager.Stop())
	u.follow("docs/install.md", "Remove")
	u.follow("docs/install.md", "Remove everything")
	if left := u.run(shared.Bin("kubectl"), "get", "customresourcedefinitions,namespaces,clusterroles,clusterrolebindings,validatingwebhookconfigurations", "-o", "name"); strings.Contains(left, "5spot") {
		t.Errorf("it is not removed:\n%s", left)
	}
}

const webhookName = "fivespot-validating-webhook-configuration"

var deploymentKey = client.ObjectKey{Namespace: "5spot-system", Name: "fivespot-controller-manager"}

// manager runs the manager as a pod of the installed Deployment would: with the permissions of its service account, and
// its webhook.
func (u *user) manager(ctx context.Context, version string) *plane.Process {
	u.t.Helper()
	d := u.deployment(ctx, deploymentKey.Name)
	image := d.Spec.Template.Spec.Containers[0].Image
	if want := mirror + "/cluster-api-addon-provider-5spot:" + version; image != want {
		u.t.Errorf("the manager has the image %s, want %s", image, want)
	}
	return u.start(ctx, system.ManagerName, d, u.components(version))
}

// components are the manifests of a release.
func (u *user) components(version string) []byte {
	u.t.Helper()
	return []byte(u.read(u.path("addon-5spot", version, "addon-components.yaml")))
}

// start runs the manager of a Deployment as its pod would. The API server calls the webhooks of the manifests on this
// machine.
func (u *user) start(ctx context.Context, name string, d *appsv1.Deployment, manifests ...[]byte) *plane.Process {
	u.t.Helper()
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.Name = d.Namespace, fmt.Sprintf("%s-%d", d.Name, d.CreationTimestamp.Unix())
	u.must(client.IgnoreAlreadyExists(u.plane.Management.Client.Create(ctx, pod)))
	args := slices.Concat(system.Unlimited, []string{"--pod=" + pod.Namespace + "/" + pod.Name, "--leader-election-namespace=" + pod.Namespace})
	for _, arg := range pod.Spec.Containers[0].Args {
		flag, _, _ := strings.Cut(arg, "=")
		if slices.Contains([]string{"--leader-elect", "--namespace", "--runtime-extension", "--watch-filter"}, flag) {
			args = append(args, arg)
		}
	}
	proc, err := u.plane.NewAddon(ctx, plane.AddonOptions{
		Name: name, Path: system.DefaultBin() + "/manager", Manifests: manifests,
		ServiceAccount: client.ObjectKey{Namespace: d.Namespace, Name: pod.Spec.ServiceAccountName}, Args: args,
	})
	u.must(err)
	u.must(proc.Start(ctx))
	return proc
}

// alive makes a change that only a running manager reacts to.
func (u *user) alive(ctx context.Context, sm *v1alpha1.ScheduledMachine) {
	u.t.Helper()
	c := shared.Management.Client
	u.must(c.Get(ctx, client.ObjectKeyFromObject(sm), sm))
	before := sm.DeepCopy()
	sm.Spec.Priority = new(*sm.Spec.Priority + 1)
	u.must(c.Patch(ctx, sm, client.MergeFrom(before)))
	u.must(shared.Management.Wait(ctx, sm, func() error {
		if sm.Status.ObservedGeneration < sm.Generation {
			return errors.New("nobody looked at it")
		}
		return nil
	}))
}

// A state is what must not change.
type state struct {
	scheduled v1alpha1.ScheduledMachine
	machine   clusterv1.Machine
}

func (u *user) state(ctx context.Context, sm *v1alpha1.ScheduledMachine) state {
	u.t.Helper()
	var s state
	u.must(shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(sm), &s.scheduled))
	key := client.ObjectKey{Namespace: sm.Namespace, Name: s.scheduled.Status.MachineRef.Name}
	u.must(shared.Management.Client.Get(ctx, key, &s.machine))
	return s
}

func (s state) mustEqual(t *testing.T, now state) {
	t.Helper()
	if s.scheduled.UID != now.scheduled.UID || s.scheduled.Status.Phase != now.scheduled.Status.Phase {
		t.Errorf("the ScheduledMachine was %s in phase %s, and is %s in phase %s",
			s.scheduled.UID, s.scheduled.Status.Phase, now.scheduled.UID, now.scheduled.Status.Phase)
	}
	if s.machine.UID != now.machine.UID || !now.machine.DeletionTimestamp.IsZero() {
		t.Errorf("the Machine was %s, and is %s, deleted %v", s.machine.UID, now.machine.UID, now.machine.DeletionTimestamp)
	}
}
