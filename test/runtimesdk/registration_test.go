// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

func TestItIsDiscovered(t *testing.T) {
	w := newWorld(t)
	var handlers []string
	for _, h := range w.config.Status.Handlers {
		handlers = append(handlers, h.Name+" "+h.RequestHook.Hook)
	}
	slices.Sort(handlers)
	want := []string{
		"after-control-plane-initialized.fivespot AfterControlPlaneInitialized",
		"before-cluster-delete.fivespot BeforeClusterDelete",
		"before-cluster-upgrade.fivespot BeforeClusterUpgrade",
		"before-workers-upgrade.fivespot BeforeWorkersUpgrade",
		"discover-variables.fivespot DiscoverVariables",
		"generate-patches.fivespot GeneratePatches",
		"validate-topology.fivespot ValidateTopology",
	}
	if diff := cmp.Diff(want, handlers); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestARestartKeepsTheRegistration(t *testing.T) {
	w := newWorld(t)
	uid := w.config.UID
	for _, end := range []func(*plane.Process){w.stop, w.kill} {
		end(shared.Manager)
		if !w.registered() || w.config.UID != uid {
			t.Fatal("a restart is no farewell")
		}
		w.start(shared.Manager)
		w.waitDiscovered()
	}
	w.stop(shared.Core())
	t.Logf("core works %v after its start, with us registered", w.startCore())
	w.waitDiscovered()
}

// TestCoreStartsWithoutUs removes 5-Spot in every possible way, and then starts core.
func TestCoreStartsWithoutUs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		leave  func(*world)
	}{
		"Scaled": {"clusterctl scales to nothing before it upgrades.", func(w *world) {
			w.scale(0)
			w.stop(shared.Manager)
		}},
		"Deleted": {"The Deployment is gone before its pods are.", func(w *world) {
			w.must(shared.Management.Client.Delete(w.ctx(), w.deployment))
			w.stop(shared.Manager)
		}},
		"ByHand": {"A person does what we cannot.", func(w *world) {
			w.kill(shared.Manager)
			_, err := shared.Management.Kubectl(w.ctx(), "delete", "extensionconfig", "fivespot")
			w.must(err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.leave(w)
			if !w.coreStartsAlone() {
				t.Errorf("%s\ncore waits for us", tc.reason)
			}
		})
	}
}

// coreStartsAlone reports whether core starts without waiting for an extension, once 5-Spot is withdrawn.
func (w *world) coreStartsAlone() bool {
	w.Helper()
	w.waitWithdrawn()
	w.stop(shared.Core())
	n := w.said(shared.Core(), cold)
	w.Logf("core works %v after its start, without us", w.startCore())
	return w.said(shared.Core(), cold) == n
}

// TestCoreWaitsForUs shows the remaining limit: a killed manager cannot withdraw its registration.
func TestCoreWaitsForUs(t *testing.T) {
	w := newWorld(t)
	w.kill(shared.Manager)
	w.stop(shared.Core())
	waits, works := w.said(shared.Core(), cold), w.said(shared.Core(), warm)
	w.start(shared.Core())
	w.waitSaid(shared.Core(), cold, waits)
	w.start(shared.Manager)
	w.waitSaid(shared.Core(), warm, works)
	if shared.Core().PID() == 0 {
		t.Error("core ended")
	}
	w.waitDiscovered()
}

// TestWeMayStartFirst tries the other order: in the tests above core had started alone.
func TestWeMayStartFirst(t *testing.T) {
	w := newWorld(t)
	w.scale(0)
	w.stop(shared.Manager)
	w.waitWithdrawn()
	w.stop(shared.Core())
	w.scale(2)
	w.start(shared.Manager)
	w.start(shared.Core())
	w.waitDiscovered()
}

func TestItIsTurnedOff(t *testing.T) {
	w := newWorld(t)
	w.stop(shared.Manager)
	shared.Manager.AddArgs("--runtime-extension=disabled")
	w.start(shared.Manager)
	w.waitWithdrawn()
	w.stop(shared.Manager)
	shared.Manager.AddArgs("--runtime-extension=enabled")
	w.start(shared.Manager)
	w.waitDiscovered()
}

// TestRuntimeSDKIsTurnedOnLater has a core that first rejects the registration.
func TestRuntimeSDKIsTurnedOnLater(t *testing.T) {
	const refused = `state="Refused"`
	w := newWorld(t)
	w.scale(0)
	w.stop(shared.Manager)
	w.waitWithdrawn()
	w.stop(shared.Core())
	shared.Core().AddArgs("--feature-gates=RuntimeSDK=false")
	w.start(shared.Core())
	w.scale(2)
	n, told := len(w.tries()), w.said(shared.Manager, refused)
	w.start(shared.Manager)
	w.must(plane.Until(w.ctx(), func(context.Context) error {
		if len(w.tries())-n < 3 {
			return errors.New("it does not try again")
		}
		return nil
	}))
	if got := w.said(shared.Manager, refused) - told; got != 1 {
		t.Errorf("it is told %d times, want once", got)
	}
	if n := w.said(shared.Manager, `"Reconciler error" controller="extensionconfig"`); n > 0 {
		t.Errorf("%d errors are logged, and nothing is wrong", n)
	}
	pid := shared.Manager.PID()
	w.stop(shared.Core())
	shared.Core().AddArgs("--feature-gates=RuntimeSDK=true")
	w.start(shared.Core())
	w.waitDiscovered()
	if shared.Manager.PID() != pid {
		t.Error("our manager was restarted")
	}
}

// TestTheRegistrationGoesWithTheWebhook uninstalls 5-Spot without a graceful stop. It is the last test: the garbage
// collector takes half a minute to discover the kinds of a new cluster.
func TestTheRegistrationGoesWithTheWebhook(t *testing.T) {
	w := newWorld(t)
	w.kill(shared.Manager)
	w.must(shared.Management.Client.Delete(w.ctx(), w.owner))
	if !w.coreStartsAlone() {
		t.Error("core waits for us")
	}
}

// tries are the manager's attempts to register.
func (w *world) tries() []auditv1.Event {
	w.Helper()
	events, err := shared.Management.AuditEvents()
	w.must(err)
	return slices.DeleteFunc(events, func(e auditv1.Event) bool {
		return e.User.Username != system.ManagerUser || e.Verb != "patch" || e.Stage != auditv1.StageResponseComplete ||
			e.ObjectRef == nil || e.ObjectRef.Resource != "extensionconfigs"
	})
}
