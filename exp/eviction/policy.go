// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
)

// A Policy is a ReschedulePolicy or a ClusterReschedulePolicy.
type Policy struct {
	evictionv1.ReschedulePolicySpec

	evictionv1.PolicyReference
	pods labels.Selector
	// namespaces selects namespaces; nil selects all.
	namespaces labels.Selector
}

// String returns kind and name.
func (p *Policy) String() string { return string(p.Kind) + " " + p.Name }

func (p *Policy) facts() *verdict.Policy {
	if p == nil {
		return nil
	}
	return &verdict.Policy{
		Name: p.String(), HealthyNode: string(cmp.Or(p.HealthyNode, evictionv1.HealthyNodeAllow)),
		Fallback: string(cmp.Or(p.Fallback, evictionv1.FallbackAllow)), MaxConcurrent: int(p.MaxConcurrent), Deadline: p.deadline(),
	}
}

func (p *Policy) deadline() time.Duration { return time.Duration(p.DeadlineSeconds) * time.Second }

// Policies are the policies that may select a pod of one namespace, in order. The first one that selects the pod
// applies.
type Policies []*Policy

// PoliciesFor reads the policies of a namespace and the cluster-wide policies. It leaves out a policy with an invalid
// selector, and returns an error for it in invalid.
func PoliciesFor(ctx context.Context, reader client.Reader, namespace string) (found Policies, invalid []error, err error) {
	own, all := &evictionv1.ReschedulePolicyList{}, &evictionv1.ClusterReschedulePolicyList{}
	if err := reader.List(ctx, own, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing ReschedulePolicies: %w", err)
	}
	if err := reader.List(ctx, all); err != nil {
		return nil, nil, fmt.Errorf("listing ClusterReschedulePolicies: %w", err)
	}
	slices.SortFunc(own.Items, func(a, b evictionv1.ReschedulePolicy) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(all.Items, func(a, b evictionv1.ClusterReschedulePolicy) int { return cmp.Compare(a.Name, b.Name) })
	add := func(p *Policy, namespaces *metav1.LabelSelector) {
		var bad error
		if p.pods, bad = metav1.LabelSelectorAsSelector(&p.PodSelector); bad != nil {
			invalid = append(invalid, fmt.Errorf("%s is ignored: spec.podSelector: %w", p, bad))
			return
		}
		if p.unselects() {
			invalid = append(invalid, fmt.Errorf("%s is ignored: spec.podSelector selects no pod that has the label %s=%s of spec.request", p, p.Request.Label.Key, p.Request.Label.Value))
			return
		}
		if namespaces != nil && len(namespaces.MatchLabels)+len(namespaces.MatchExpressions) > 0 {
			if p.namespaces, bad = metav1.LabelSelectorAsSelector(namespaces); bad != nil {
				invalid = append(invalid, fmt.Errorf("%s is ignored: spec.namespaceSelector: %w", p, bad))
				return
			}
		}
		found = append(found, p)
	}
	for i := range own.Items {
		p := &own.Items[i]
		add(&Policy{ReschedulePolicySpec: p.Spec, PolicyReference: evictionv1.PolicyReference{Kind: evictionv1.NamespacedPolicy, Name: p.Name}}, nil)
	}
	for i := range all.Items {
		p := &all.Items[i]
		add(&Policy{ReschedulePolicySpec: p.Spec.ReschedulePolicySpec, PolicyReference: evictionv1.PolicyReference{Kind: evictionv1.ClusterPolicy, Name: p.Name}}, &p.Spec.NamespaceSelector)
	}
	return found, invalid, nil
}

// unselects reports whether the mark itself ends the policy's selection of the pod.
func (p *Policy) unselects() bool {
	label := p.Request.Label
	if label == nil {
		return false
	}
	requirements, _ := p.pods.Requirements()
	return slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		return r.Key() == label.Key && !r.Matches(labels.Set{label.Key: label.Value})
	})
}

// Of returns the policy that selects a pod, nil if none does. It reads the pod's namespace only for a policy with a
// namespaceSelector.
func (p Policies) Of(ctx context.Context, reader client.Reader, pod client.Object) (*Policy, error) {
	for _, policy := range p {
		if !policy.pods.Matches(labels.Set(pod.GetLabels())) {
			continue
		}
		if policy.namespaces == nil {
			return policy, nil
		}
		namespace := &metav1.PartialObjectMetadata{}
		namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		if err := reader.Get(ctx, client.ObjectKey{Name: pod.GetNamespace()}, namespace); err != nil {
			return nil, fmt.Errorf("reading namespace: %w", err)
		}
		if policy.namespaces.Matches(labels.Set(namespace.Labels)) {
			return policy, nil
		}
	}
	return nil, nil
}
