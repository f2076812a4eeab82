// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// TestAPausedManagerChangesNothing replaces the shared manager by a paused manager, and then by a shadow, so it is not
// parallel. A window opens, another ends, a kill switch turns on, and an owner makes a request. The API servers' audit
// logs show all writes.
func TestAPausedManagerChangesNothing(t *testing.T) {
	l := newLab(t, "actuation")
	closes, asks, kills := l.running("closes", nil), l.running("asks", nil), l.running("kills", nil)
	opens := l.started("opens", outside)
	l.waitPhase(opens, inactive, "")
	node := l.node(asks)
	l.must(shared.Manager.Stop())
	restarted := false
	restart := func() {
		if !restarted {
			restarted = true
			l.must(shared.Manager.Start(timeout(t, patience)))
		}
	}
	defer restart()

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	management, work := len(l.audit(shared.Management)), len(l.audit(workload))
	begin := time.Now()
	t.Run("Paused", func(t *testing.T) {
		l := &lab{t: t, Workload: l.Workload}
		l.startManager("5spot-paused", "--actuation-paused", "--audit-log="+log)
		l.withoutWebhooks(func() {
			l.closeWindow(closes)
			l.openWindow(opens)
			l.edit(kills, func() { kills.Spec.KillSwitch = true })
		})
		l.askBack(node, "java")
		for _, sm := range []*v1alpha1.ScheduledMachine{closes, kills, asks} {
			l.waitCondition(sm, v1alpha1.DepartureGatedCondition, metav1.ConditionTrue, v1alpha1.ActuationPausedReason)
		}
		l.waitCondition(opens, v1alpha1.ReadyCondition, metav1.ConditionFalse, v1alpha1.ActuationPausedReason)
		l.waitSuppressed(asks)
		l.wantTold(log, "suppressed", map[string]string{"Depart": closes.Name, "Join": opens.Name, "KillSwitch": kills.Name, "EmergencyRemove": asks.Name})
	})
	silences = append(silences, judge.Silence{From: begin, To: time.Now()})
	sent := l.sent(management, work)
	for _, e := range sent {
		status := e.ObjectRef.Resource == "scheduledmachines" && e.ObjectRef.Subresource == "status"
		if e.ObjectRef.Resource != "events" && !status || status && strings.Contains(string(e.RequestObject.Raw), `"phase"`) {
			t.Errorf("a paused manager sent: %s", describe(e))
		}
	}
	if len(sent) == 0 {
		t.Error("nothing of the paused manager is recorded: the test looks for the wrong user")
	}
	for sm, phase := range map[*v1alpha1.ScheduledMachine]v1alpha1.Phase{closes: active, kills: active, asks: active, opens: inactive} {
		if l.waitFor(sm, func() error { return nil }); sm.Status.Phase != phase {
			t.Errorf("%s became %s", sm.Name, sm.Status.Phase)
		}
	}

	management, work = len(l.audit(shared.Management)), len(l.audit(workload))
	shadow := filepath.Join(t.TempDir(), "shadow.jsonl")
	begin = time.Now()
	t.Run("DryRun", func(t *testing.T) {
		l := &lab{t: t, Workload: l.Workload}
		l.startManager("5spot-shadow", "--dry-run", "--audit-log="+shadow)
		l.wantTold(shadow, "dryrun", map[string]string{"Depart": closes.Name, "Join": opens.Name, "KillSwitch": kills.Name, "EmergencyRemove": asks.Name})
	})
	silences = append(silences, judge.Silence{From: begin, To: time.Now(), Shadow: true})
	for _, e := range l.sent(management, work) {
		if e.ObjectRef.Resource != "events" {
			t.Errorf("a shadow sent: %s", describe(e))
		}
	}

	restart()
	l.wantReclaimed(asks, "java")
	l.waitPhase(closes, inactive, metav1.ConditionTrue)
	l.waitPhase(opens, active, metav1.ConditionTrue)
	l.waitPhase(kills, v1alpha1.PhaseTerminated, metav1.ConditionTrue)
}

// sent returns the changing requests of 5-Spot's managers in both clusters, since two positions in their audit logs.
func (l *lab) sent(management, work int) []auditv1.Event {
	l.t.Helper()
	var sent []auditv1.Event
	for _, e := range append(l.audit(shared.Management)[management:], l.audit(workload)[work:]...) {
		if isWrite(e) && strings.Contains(e.UserAgent, controllers.ManagerName) && !strings.HasSuffix(e.ObjectRef.Resource, "reviews") {
			sent = append(sent, e)
		}
	}
	return sent
}

// waitSuppressed waits for the Event that an owner's request waits for the end of a pause.
func (l *lab) waitSuppressed(sm *v1alpha1.ScheduledMachine) {
	l.t.Helper()
	l.until(func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := shared.Management.Client.List(ctx, list, client.InNamespace(sm.Namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == sm.Name && e.Reason == v1alpha1.EmergencySuppressedEvent {
				return nil
			}
		}
		return errors.New("nobody is told that the owner waits")
	})
}

// wantTold waits until a manager's audit log has a line of each kind about a machine, and checks that all lines have the
// outcome.
func (l *lab) wantTold(log, outcome string, want map[string]string) {
	l.t.Helper()
	l.until(func(context.Context) error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for kind, name := range want {
			if !bytes.Contains(text, []byte(`"kind":"`+kind+`","machine":"`+l.Key.Namespace+"/"+name+`"`)) {
				return errors.New("there is no line of kind " + kind)
			}
		}
		return nil
	})
	text, err := os.ReadFile(log)
	l.must(err)
	for line := range bytes.Lines(text) {
		var said struct{ Outcome string }
		l.must(json.Unmarshal(line, &said))
		if said.Outcome != outcome {
			l.t.Errorf("line %s", line)
		}
	}
}
