// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"fmt"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// WaitFor reads an object of the management cluster until cond accepts it.
func (c *Cluster) WaitFor(obj client.Object, cond func() error) {
	c.T.Helper()
	c.must(await.Object(c.timeout(), c.Management, obj, cond))
}

// WaitPhase waits for a phase and, unless it is empty, a status of Ready, both for the newest spec.
func (c *Cluster) WaitPhase(sm *v1alpha1.ScheduledMachine, phase v1alpha1.Phase, ready metav1.ConditionStatus) {
	c.T.Helper()
	c.WaitFor(sm, func() error {
		if sm.Status.ObservedGeneration != sm.Generation {
			return fmt.Errorf("generation %d is not observed yet", sm.Generation)
		}
		if sm.Status.Phase != phase {
			return fmt.Errorf("its phase is %q, not %s: %s", sm.Status.Phase, phase, sm.Status.Message)
		}
		if c := Condition(sm, v1alpha1.ReadyCondition); ready != "" && c.Status != ready {
			return fmt.Errorf("its Ready is %s, not %s: %s: %s", c.Status, ready, c.Reason, c.Message)
		}
		return nil
	})
}

// WaitCondition waits for a condition whose message contains all of parts. An empty
// reason is any.
func (c *Cluster) WaitCondition(sm *v1alpha1.ScheduledMachine, want metav1.Condition, parts ...string) {
	c.T.Helper()
	c.WaitFor(sm, func() error {
		got := Condition(sm, want.Type)
		if got.Status != want.Status || want.Reason != "" && got.Reason != want.Reason {
			return fmt.Errorf("%s is %s/%s, not %s/%s: %s", want.Type, got.Status, got.Reason, want.Status, want.Reason, got.Message)
		}
		for _, part := range parts {
			if !strings.Contains(got.Message, part) {
				return fmt.Errorf("the message of %s does not say %q: %s", want.Type, part, got.Message)
			}
		}
		return nil
	})
}

// Condition returns a condition of a ScheduledMachine, empty if it has none.
func Condition(sm *v1alpha1.ScheduledMachine, kind string) metav1.Condition {
	for _, c := range sm.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{Type: kind, Status: "missing"}
}

// WaitEvents waits until the events of sm contain all texts, each in the form
// "type reason note".
func (c *Cluster) WaitEvents(sm *v1alpha1.ScheduledMachine, texts ...string) {
	c.T.Helper()
	c.waitEvents(sm, texts, func(e eventsv1.Event) string { return e.Type + " " + e.Reason + " " + e.Note })
}

// WaitTransitions waits for the events of transitions, such as "Pending -> Active".
func (c *Cluster) WaitTransitions(sm *v1alpha1.ScheduledMachine, transitions ...string) {
	c.T.Helper()
	texts := make([]string, len(transitions))
	for i, transition := range transitions {
		texts[i] = "Normal " + transition + ": "
	}
	c.waitEvents(sm, texts, func(e eventsv1.Event) string { return e.Type + " " + e.Note })
}

func (c *Cluster) waitEvents(sm *v1alpha1.ScheduledMachine, texts []string, line func(eventsv1.Event) string) {
	c.T.Helper()
	c.must(await.Until(c.timeout(), func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := c.Management.List(ctx, events, client.InNamespace(sm.Namespace), client.MatchingFields{"regarding.name": sm.Name}); err != nil {
			return err
		}
		var lines []string
		for _, e := range events.Items {
			lines = append(lines, line(e))
		}
		all := strings.Join(lines, "\n")
		for _, want := range texts {
			if !strings.Contains(all, want) {
				return fmt.Errorf("no event says %q among\n%s", want, all)
			}
		}
		return nil
	}))
}
