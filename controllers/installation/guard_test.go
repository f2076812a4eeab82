// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	evictionguard "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/testenv"
)

const guardName = "fivespot-eviction-guard"

// guarded returns a world in which the guard is installed, too.
func guarded(t *testing.T, commands ...string) *world {
	t.Helper()
	w := newWorld(t, commands...)
	var err error
	w.guard, err = evictionguard.Objects()
	w.Must(err)
	w.guard[0] = w.manifests[0]
	for _, u := range w.guard[1:] {
		if u.GetKind() != "CustomResourceDefinition" {
			w.Must(client.IgnoreNotFound(w.Client.Delete(w.Context(), u.DeepCopy())))
		}
	}
	w.restart()
	return w
}

// applied returns the writes of the first installation of the guard, removed the writes of its removal.
func (w *world) applied() (writes []string) {
	for _, u := range w.guard {
		writes = append(writes, "apply "+u.GetKind())
	}
	return writes
}

// stays reports whether an object remains after the guard is removed.
func stays(kind string) bool { return kind == "Namespace" || kind == "CustomResourceDefinition" }

// returned returns the writes of a later installation.
func (w *world) returned() (writes []string) {
	for _, u := range w.guard {
		verb := "apply "
		if stays(u.GetKind()) {
			verb = "update "
		}
		writes = append(writes, verb+u.GetKind())
	}
	return writes
}

func (w *world) removed() (writes []string) {
	for _, u := range slices.Backward(w.guard) {
		if k := u.GetKind(); !stays(k) {
			writes = append(writes, "delete "+k)
		}
	}
	return writes
}

func TestTheGuardIsWhereAMachineIs(t *testing.T) {
	w := guarded(t)
	w.settle() // An earlier test may have installed the kinds.
	w.want("a settled Cluster is not written", w.settle())
	w.restart()
	w.want("what is not known is written once", w.settle(), replaced(w.applied(), "apply ", "update "))
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"java"} })
	w.want("the agent comes beside it", w.settle(), returns, reports)
	w.optIn(w.node)
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.want("and goes without it", w.settle(), optsOut, removes, reports)
	w.Must(w.Client.Delete(t.Context(), w.sm))
	w.want("the webhook configuration goes first", w.settle(), w.removed())
	for _, u := range w.guard {
		if w.Read(u.DeepCopy()) != stays(u.GetKind()) {
			t.Errorf("%s %s: policies of people stay, and nothing else", u.GetKind(), u.GetName())
		}
	}
	w.want("it is gone", w.settle())
	w.restart()
	w.want("another reconcile writes nothing", w.settle())
	w.member("again")
	w.want("it comes back, to the policies that stayed", w.settle(), w.returned())
}

// TestWhatTheGuardWritesIsItsOwn covers the guard's certificate, and rules that the API server's controller aggregates.
func TestWhatTheGuardWritesIsItsOwn(t *testing.T) {
	w := guarded(t)
	w.settle()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: guardName}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: guardName + "-certificates"}}
	tracking := &unstructured.Unstructured{}
	tracking.SetAPIVersion("rbac.authorization.k8s.io/v1")
	tracking.SetKind("ClusterRole")
	tracking.SetName(guardName + "-tracking")
	w.Edit(config, func() { config.Webhooks[0].ClientConfig.CABundle = []byte(authority) })
	w.Edit(secret, func() { secret.Data = map[string][]byte{"tls.crt": []byte("x")} })
	w.Edit(tracking, func() {
		tracking.Object["rules"] = []any{map[string]any{"apiGroups": []any{"couchbase.com"}, "resources": []any{"couchbaseclusters"}, "verbs": []any{"get"}}}
	})
	versions := []string{config.ResourceVersion, secret.ResourceVersion, tracking.GetResourceVersion()}
	w.want("what has changed is looked after once", w.settle(), []string{"update ClusterRole", "update Secret", "update ValidatingWebhookConfiguration"})
	w.want("and that is that", w.settle())
	for i, obj := range []client.Object{config, secret, tracking} {
		if w.Read(obj); obj.GetResourceVersion() != versions[i] {
			t.Errorf("%T was changed", obj)
		}
	}
	w.Edit(config, func() { config.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail) })
	w.want("what is ours is mended", w.settle(), []string{"update ValidatingWebhookConfiguration"})
	if w.Read(config); *config.Webhooks[0].FailurePolicy != admissionregistrationv1.Ignore || string(config.Webhooks[0].ClientConfig.CABundle) != authority {
		t.Errorf("it is %v", config.Webhooks[0])
	}
}

func TestAGuardThatCannotBeInstalledDelaysNoAgent(t *testing.T) {
	w := guarded(t, "java")
	theirs := w.guard[slices.IndexFunc(w.guard, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })].DeepCopy()
	w.Create(theirs)
	for range 3 {
		if err := w.reconcile(); err == nil || !strings.Contains(err.Error(), "Deployment "+guardName+" exists and is not managed by 5-Spot") {
			t.Fatalf("the error must name it: %v", err)
		}
	}
	w.wantInstalled(metav1.ConditionTrue, "is installed") // The owner is protected without a guard.
	if w.Read(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: guardName}}) {
		t.Error("the API server is told of a guard that is not there")
	}
	w.drop("Normal InstallationRestored CustomResourceDefinition") // An earlier test caused these.
	if note := w.note(); !strings.HasPrefix(note, "Warning EvictionGuardNotInstalled installing eviction guard: Deployment") || !strings.Contains(note, "--eviction-guard-install=disabled") {
		t.Errorf("event %q", note)
	}
	if len(w.recorder.Events) > 0 {
		t.Errorf("people are told twice: %q", w.note())
	}
	w.Writes = nil
	if w.reconcile() == nil || slices.Contains(w.Writes, "update DaemonSet") {
		t.Errorf("the agent is left alone: %v", w.Writes)
	}
	w.Must(w.Client.Delete(t.Context(), theirs))
	w.settle()
	w.Must(w.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), &appsv1.Deployment{}))
}

// TestAPauseOfTheGuardSaysNothingOfTheAgent covers an installed agent, and a guard whose installation is suppressed.
func TestAPauseOfTheGuardSaysNothingOfTheAgent(t *testing.T) {
	w := guarded(t, "java")
	manifests := w.guard
	w.guard = nil
	w.restart()
	w.settle()
	gate := &actuate.Gate{DryRun: true}
	w.r.Guard, w.r.Actuate, w.r.ClusterCache = manifests, actuate.NewGated(gate, w.client()), testenv.GatedCache(gate.Transport, w.r.ClusterCache)
	w.Writes = nil
	if err := w.reconcile(); err != nil || len(w.Writes) > 0 || len(w.recorder.Events) > 0 {
		t.Errorf("%v, sent %v", err, w.Writes)
	}
	w.wantInstalled(metav1.ConditionTrue, "is installed")
}

func TestAMachineThatComesOrGoesWakesItsCluster(t *testing.T) {
	sm := testenv.ScheduledMachine("farm", "box")
	for _, guard := range []bool{false, true} {
		p := installation.Concerned(guard)
		if p.Create(event.CreateEvent{Object: sm}) != guard || p.Delete(event.DeleteEvent{Object: sm}) != guard {
			t.Errorf("guard %t: the first and the last of a Cluster count where it is installed", guard)
		}
		if p.Update(event.UpdateEvent{ObjectOld: sm, ObjectNew: sm}) {
			t.Errorf("guard %t: what changes of one that has no agent is no news", guard)
		}
	}
}

// TestAnAgentThatCannotBeInstalledHoldsUpNoGuard covers the opposite case: the agent fails, and the guard is installed.
func TestAnAgentThatCannotBeInstalledHoldsUpNoGuard(t *testing.T) {
	w := guarded(t, "java")
	theirs := w.daemonSet()
	theirs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	theirs.Spec.Template.Labels = theirs.Spec.Selector.MatchLabels
	theirs.Spec.Template.Spec.Containers = []corev1.Container{{Name: "x", Image: "x"}}
	w.Create(theirs)
	if w.reconcile() == nil {
		t.Error("the agent is not installed")
	}
	w.wantInstalled(metav1.ConditionFalse, "DaemonSet")
	if !w.Read(&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: guardName}}) {
		t.Error("the guard is not installed")
	}
}

const authority = `-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUF60aCGFIsgkoQDPfvmxhvjdUtlMwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjMxNzIwNTVaGA8yMTI2MTAzMDE3MjA1
NVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBmg
PDrJeCtVyBAAsCF6Ag9/JkfPlsog9NXVBeeYc6gdtfwwIPpcLJB/O5r1RXAxyrL6
OJgDmvpBXB9hT1OT/IWjUzBRMB0GA1UdDgQWBBSvHu1WQ9BWgHJ/JhA+n9+rTyTf
dTAfBgNVHSMEGDAWgBSvHu1WQ9BWgHJ/JhA+n9+rTyTfdTAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIC3+hoKzJOwtrJP5VaGucQrhzO/joV4To8ux
z/rnrakAAiEAyZY3BOHoXAKMrbqJXvrjs2A6eq4l0z9PXOAFqdcFzh4=
-----END CERTIFICATE-----
`
