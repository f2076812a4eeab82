// SPDX-License-Identifier: Apache-2.0

package ownerrights

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// policy is the name of the policy and of its binding.
const policy = "fivespot-owner"

// TestPeoplesRights compares the API server's decisions with the specification, and then checks that they depend on the
// policy.
func TestPeoplesRights(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	w := newWorld(ctx, t)

	w.wantVerbs(ctx)
	for _, c := range changes {
		w.want(ctx, owner, c, c.allowed)
		w.want(ctx, oneOwner, c, c.allowed && c.machine == lent)
		w.want(ctx, writer, c, c.allowed)
		for _, who := range []string{editor, admin, manager, root} {
			w.want(ctx, who, c, true)
		}
		for _, who := range []string{viewer, stranger} {
			w.want(ctx, who, c, false)
		}
	}
	w.wantCollected(ctx)
	w.wantPlugin(ctx)
	w.wantForgotten(ctx)
	w.wantNoWarnings(ctx)
	if t.Failed() {
		return
	}

	w.kubectl(ctx, "delete", "validatingadmissionpolicybinding", policy)
	w.eventually(ctx, func() bool { return !w.guarded(ctx) })
	for _, c := range changes {
		w.want(ctx, owner, c, true)
	}
}

type world struct {
	*testing.T

	clients map[string]client.Client
	users   map[string]plane.User
}

func newWorld(ctx context.Context, t *testing.T) *world {
	t.Helper()
	w := &world{T: t, clients: map[string]client.Client{}, users: map[string]plane.User{}}
	w.must(v1alpha1.AddToScheme(shared.Management.Client.Scheme()))
	crd, err := shared.Management.Kubectl(ctx, "kustomize", filepath.Join(system.Repository(), "config", "crd"))
	w.must(err)
	w.must(shared.Management.InstallCRDs(ctx, []byte(crd)))
	w.must(shared.Management.EnsureNamespace(ctx, desks))
	w.installRoles(ctx)
	w.kubectl(ctx, "apply", "-k", filepath.Join(system.Repository(), "config", "policy"))
	for _, who := range []string{owner, oneOwner, writer, viewer, editor, admin, stranger} {
		user, err := shared.Management.User(who)
		w.must(err)
		w.know(who, user)
	}
	user, err := shared.Management.User(root, "system:masters")
	w.must(err)
	w.know(root, user)
	user, err = shared.Management.ServiceAccount(ctx, client.ObjectKey{Namespace: "5spot-system", Name: "fivespot-manager"})
	w.must(err)
	w.know(manager, user)
	for _, name := range []string{lent, asked, away} {
		w.create(ctx, machineOf(name))
	}
	w.eventually(ctx, func() bool { return w.guarded(ctx) && w.may(ctx, editor, "manage") && w.may(ctx, viewer, "list") })
	return w
}

// installRoles installs the released cluster roles, and binds them.
func (w *world) installRoles(ctx context.Context) {
	w.Helper()
	text, err := shared.Management.Kubectl(ctx, "kustomize", filepath.Join(system.Repository(), "config", "default"))
	w.must(err)
	objects, err := plane.Objects([]byte(text))
	w.must(err)
	for _, u := range objects {
		if kind := u.GetKind(); kind == "ClusterRole" || kind == "ClusterRoleBinding" {
			w.create(ctx, u)
		}
	}
	w.create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: desks, Name: writer},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"scheduledmachines"}, Verbs: []string{"get", "list", "watch", "patch", "update"},
		}},
	})
	for who, ref := range map[string]rbacv1.RoleRef{
		owner: {Kind: "ClusterRole", Name: "fivespot-owner-role"}, viewer: {Kind: "ClusterRole", Name: "view"},
		editor: {Kind: "ClusterRole", Name: "edit"}, admin: {Kind: "ClusterRole", Name: "admin"}, writer: {Kind: "Role", Name: writer},
	} {
		w.create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: desks, Name: who}, RoleRef: ref,
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: who}},
		})
	}
	_, err = shared.Management.KubectlInput(ctx, roleOfTheGuide(w.T), "apply", "-f", "-")
	w.must(err)
}

// roleOfTheGuide is the guide's Role for the owner of one machine, with this test's names.
func roleOfTheGuide(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "guide.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1) {
		if strings.Contains(m[1], "kind: RoleBinding") {
			return strings.NewReplacer("farm", desks, "desk-42", lent, "ada@example.org", oneOwner).Replace(m[1])
		}
	}
	t.Fatal("the guide has no RoleBinding")
	return ""
}

func (w *world) know(who string, user plane.User) {
	w.Helper()
	c, err := client.New(user.Config, client.Options{Scheme: shared.Management.Client.Scheme()})
	w.must(err)
	w.clients[who], w.users[who] = c, user
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create creates an object, unless an earlier run has.
func (w *world) create(ctx context.Context, obj client.Object) {
	w.Helper()
	if err := shared.Management.Client.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
		w.must(err)
	}
}

func (w *world) kubectl(ctx context.Context, args ...string) {
	w.Helper()
	_, err := shared.Management.Kubectl(ctx, args...)
	w.must(err)
}

func (w *world) eventually(ctx context.Context, cond func() bool) {
	w.Helper()
	w.must(plane.Until(ctx, func(context.Context) error {
		if !cond() {
			return errors.New("not yet")
		}
		return nil
	}))
}

// send makes a dry run, which admission checks as any other request.
func (w *world) send(ctx context.Context, who string, c change) error {
	sm := machineOf(c.machine)
	opts := []client.PatchOption{client.DryRunAll, client.FieldOwner(who)}
	if c.kind == "application/apply-patch+yaml" {
		opts = append(opts, client.ForceOwnership)
	}
	return w.clients[who].Patch(ctx, sm, client.RawPatch(c.kind, []byte(c.body)), opts...)
}

func (w *world) want(ctx context.Context, who string, c change, allowed bool) {
	w.Helper()
	err := w.send(ctx, who, c)
	if err != nil && !apierrors.IsForbidden(err) && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), policy)) {
		w.Errorf("%s %s: was not judged: %v", who, c, err)
	} else if (err == nil) != allowed {
		w.Errorf("%s %s: want allowed %t, got %v", who, c, allowed, err)
	}
}

// guarded reports whether the policy is in force.
func (w *world) guarded(ctx context.Context) bool {
	err := w.send(ctx, owner, merge("", lent, `{"spec":{"priority":7}}`, false))
	return err != nil && strings.Contains(err.Error(), policy)
}

func (w *world) may(ctx context.Context, who, verb string) bool {
	w.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: desks, Group: v1alpha1.GroupVersion.Group, Resource: "scheduledmachines", Verb: verb},
	}}
	w.must(w.clients[who].Create(ctx, review))
	return review.Status.Allowed
}

func (w *world) wantVerbs(ctx context.Context) {
	w.Helper()
	for who, want := range verbs {
		for verb := range strings.FieldsSeq("get list watch create patch update delete deletecollection manage") {
			if got := w.may(ctx, who, verb); got != slices.Contains(strings.Fields(want), verb) {
				w.Errorf("%s may %s: %t", who, verb, got)
			}
		}
	}
}

// wantCollected checks that the policy does not block Kubernetes itself: at the end of a foreground deletion the
// garbage collector removes a finalizer.
func (w *world) wantCollected(ctx context.Context) {
	w.Helper()
	sm := machineOf("collected")
	sm.Finalizers = nil
	c := shared.Management.Client
	w.must(c.Create(ctx, sm))
	w.must(c.Delete(ctx, sm, client.PropagationPolicy("Foreground")))
	w.eventually(ctx, func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(sm), sm)) })
}

// wantPlugin runs the commands of an owner with the rights to one machine.
func (w *world) wantPlugin(ctx context.Context) {
	w.Helper()
	for _, who := range []string{owner, oneOwner} {
		for _, args := range [][]string{
			{"why", lent}, {"status", lent}, {"plan", lent}, {"resume", lent}, {"give-back", lent, "--reason", "Ada needs it"},
		} {
			args = append(args, "--namespace", desks, "--kubeconfig", w.users[who].Kubeconfig)
			if out, err := plugin(ctx, args...); err != nil {
				w.Errorf("%s: %v: %v\n%s", who, args, err, out)
			}
		}
		w.kubectl(ctx, "-n", desks, "annotate", "sm", lent, v1alpha1.EmergencyReclaimAnnotation+"-")
	}
	if out, err := plugin(ctx, "status", "--namespace", desks, "--kubeconfig", w.users[owner].Kubeconfig); err != nil {
		w.Errorf("status: %v\n%s", err, out)
	}
}

// wantForgotten runs resume as owners, for a machine of which only a ReclaimedMachine is left.
func (w *world) wantForgotten(ctx context.Context) {
	w.Helper()
	for who, name := range map[string]string{owner: "gone", oneOwner: lent} {
		left := &v1alpha1.ReclaimedMachine{
			ObjectMeta: metav1.ObjectMeta{Namespace: desks, Name: name},
			Spec:       v1alpha1.ReclaimedMachineSpec{ClusterName: "batch", Reason: "process-match: java"},
		}
		w.create(ctx, left)
		if name == lent { // Its ScheduledMachine exists, so resume does not read the ReclaimedMachine.
			w.must(w.clients[who].Get(ctx, client.ObjectKeyFromObject(left), left))
			w.must(w.clients[who].Delete(ctx, left))
			continue
		}
		out, err := plugin(ctx, "resume", name, "--namespace", desks, "--kubeconfig", w.users[who].Kubeconfig)
		if err != nil || !strings.Contains(out, "nothing joins") {
			w.Errorf("%s: %v\n%s", who, err, out)
		}
		if err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
			w.Errorf("%s: still remembered: %v", who, err)
		}
	}
}

// wantNoWarnings reads the API server's type check of the policy's expressions.
func (w *world) wantNoWarnings(ctx context.Context) {
	w.Helper()
	p := &admissionv1.ValidatingAdmissionPolicy{}
	p.Name = policy
	w.must(shared.Management.Wait(ctx, p, func() error {
		if p.Status.TypeChecking == nil {
			return errors.New("its types are not checked yet")
		}
		return nil
	}))
	for _, warning := range p.Status.TypeChecking.ExpressionWarnings {
		w.Errorf("%s: %s", warning.FieldRef, warning.Warning)
	}
}

// plugin runs kubectl 5spot.
func plugin(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(system.DefaultBin(), "kubectl-5spot"), args...).CombinedOutput()
	return string(out), err
}
