// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
)

// TestPoliciesInOrder has several policies that select one pod.
func TestPoliciesInOrder(t *testing.T) {
	w := newWorld(t, 1, nil)
	first := w.policy.DeepCopy()
	first.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "a"}
	first.Spec.Request.Annotation.Value = "first"
	all := &evictionv1.ClusterReschedulePolicy{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
	all.Spec.ReschedulePolicySpec = *first.Spec.DeepCopy()
	all.Spec.NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": w.ns}
	w.Create(first, all)
	t.Cleanup(func() { _ = w.Client.Delete(context.WithoutCancel(t.Context()), all) })
	p := w.pod("db-0", 0)
	w.drain(0, true)
	if resp := w.evict("db-0", verdict.Wait, verdict.Requested); resp.Policy.String() != "ReschedulePolicy a" {
		t.Errorf("got %s", resp.Policy)
	}
	if w.Read(p); p.Annotations[moveKey] != "first" {
		t.Errorf("got %v", p.Annotations)
	}
	w.Must(errors.Join(w.Client.Delete(t.Context(), first), w.Client.Delete(t.Context(), w.policy)))
	w.pod("db-1", 0)
	if resp := w.evict("db-1", verdict.Wait, verdict.Requested); resp.Policy.Kind != evictionv1.ClusterPolicy {
		t.Errorf("got %s", resp.Policy)
	}
	w.Must(w.Client.Delete(t.Context(), all))
	w.evict("db-1", verdict.Allow, verdict.NotSelected)
	if fates := w.tend(); !slices.Equal(fates, []verdict.Change{verdict.Withdraw, verdict.Withdraw}) {
		t.Errorf("nobody asks any more: %v", fates)
	}
}

// TestAPolicyThatCannotSelect causes a warning, and does not disable other policies.
func TestAPolicyThatCannotSelect(t *testing.T) {
	w := newWorld(t, 1, nil)
	bad := w.policy.DeepCopy()
	bad.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "a"}
	bad.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a b", Operator: metav1.LabelSelectorOpExists}}}
	w.Create(bad)
	w.pod("db-0", 0)
	w.drain(0, true)
	resp := w.evict("db-0", verdict.Wait, verdict.Requested)
	if len(resp.Warnings) == 0 || !strings.Contains(resp.Warnings[0], `ReschedulePolicy a is ignored: spec.podSelector: key: Invalid value: "a b"`) {
		t.Errorf("warned %q", resp.Warnings)
	}
	w.Must(w.Client.Delete(t.Context(), w.policy))
	if fates := w.tend(); !slices.Equal(fates, []verdict.Change{verdict.NoChange}) {
		t.Errorf("nobody knows what the other selects: %v", fates)
	}
}

// TestAPolicyThatCannotAsk is rejected: with its mark the policy would no longer select the pod, so that the pod would
// be evicted; or another writer would overwrite the mark.
func TestAPolicyThatCannotAsk(t *testing.T) {
	w := newWorld(t, 1, nil)
	for name, change := range map[string]func(*evictionv1.ReschedulePolicySpec){
		"by its own label": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "app", Value: "moves"}}
		},
		"by a key that no pod can have": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request.Annotation.Key = "a..b/c"
		},
		"for an operator that is none": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Inn", Values: []string{"db"}}}
		},
		"for one of no values": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}
		},
		"for values of what need only be there": func(s *evictionv1.ReschedulePolicySpec) {
			s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists, Values: []string{"db"}}}
		},
		"by what says since when": func(s *evictionv1.ReschedulePolicySpec) {
			s.Request.Annotation.Key = evictionv1.RequestedAnnotation
		},
	} {
		own := w.policy.DeepCopy()
		own.ObjectMeta = metav1.ObjectMeta{Namespace: w.ns, Name: "other"}
		change(&own.Spec)
		all := &evictionv1.ClusterReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: evictionv1.ClusterReschedulePolicySpec{ReschedulePolicySpec: own.Spec}}
		for _, policy := range []client.Object{own, all} {
			if err := w.Client.Create(t.Context(), policy, client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Errorf("%s: a %T says %v", name, policy, err)
			}
		}
	}
}

// TestAPolicyThatUnselects causes a warning, and marks no pod: a marked pod would be evicted.
func TestAPolicyThatUnselects(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted  metav1.LabelSelectorRequirement
		answer  verdict.Answer
		outcome string
	}{
		"must not have it": {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpDoesNotExist}, verdict.Allow, verdict.NotSelected},
		"another value":    {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpIn, Values: []string{"later"}}, verdict.Allow, verdict.NotSelected},
		"this, too":        {metav1.LabelSelectorRequirement{Key: "move", Operator: metav1.LabelSelectorOpIn, Values: []string{"later", "now"}}, verdict.Wait, verdict.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) {
				s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "move", Value: "now"}}
				s.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{tc.wanted}
			})
			p := w.pod("db-0", 0)
			if tc.wanted.Operator == metav1.LabelSelectorOpIn {
				w.Edit(p, func() { p.Labels["move"] = "later" })
			}
			w.drain(0, true)
			resp := w.evict("db-0", tc.answer, tc.outcome)
			if ignored := tc.answer == verdict.Allow; ignored != (len(resp.Warnings) == 1 && strings.Contains(resp.Warnings[0], "ReschedulePolicy db is ignored: spec.podSelector selects no pod that has the label move=now")) {
				t.Errorf("warned %q", resp.Warnings)
			}
		})
	}
}

// TestLabelAsMark uses a label as the mark. The guard also recognizes pods that other clients move in the background.
func TestLabelAsMark(t *testing.T) {
	w := newWorld(t, 1, func(s *evictionv1.ReschedulePolicySpec) {
		s.Request = evictionv1.Request{Label: &evictionv1.Label{Key: "move", Value: "now"}}
	})
	p, busy := w.pod("db-0", 0), w.pod("db-1", 0)
	w.Edit(busy, func() {
		busy.Annotations = map[string]string{"descheduler.alpha.kubernetes.io/eviction-in-progress": "kubevirt"}
	})
	w.drain(0, true)
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if w.Read(p); p.Labels["move"] != "now" {
		t.Errorf("got %v", p.Labels)
	}
	w.evict("db-1", verdict.Wait, verdict.Waiting)
	if w.Read(busy); busy.Labels["move"] != "" {
		t.Error("it is on its way already")
	}
}

// TestAPolicyThatAsksForSomethingElse sets its new mark, and removes the earlier one.
func TestAPolicyThatAsksForSomethingElse(t *testing.T) {
	w, p := newRequest(t, nil)
	w.Edit(w.policy, func() { w.policy.Spec.Request.Annotation.Key = "db.example.com/go" })
	w.evict("db-0", verdict.Wait, verdict.Waiting)
	w.settle()
	w.evict("db-0", verdict.Wait, verdict.Requested)
	if w.Read(p); p.Annotations["db.example.com/go"] != "please" || p.Annotations[moveKey] != "" {
		t.Errorf("got %v", p.Annotations)
	}
}

// TestPodsOfTheNodeAreNotMoved, whatever a policy selects.
func TestPodsOfTheNodeAreNotMoved(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := w.pod("db-0", 0)
	w.Edit(p, func() {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "db", UID: "d", Controller: new(true)}}
	})
	w.drain(0, true)
	w.evict("db-0", verdict.Allow, verdict.NotSelected)
}
