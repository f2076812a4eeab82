// SPDX-License-Identifier: Apache-2.0

package specs

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Refuse makes the management API server reject requests in the Cluster's namespace, a moment later. lift ends that,
// also a moment later.
func (c *Cluster) Refuse(group, resource, why string, operations ...admissionv1.OperationType) (lift func()) {
	c.T.Helper()
	name := c.Namespace + "-" + resource
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: operations,
					Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: why}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": c.Namespace},
			}},
		},
	}
	for _, obj := range []client.Object{policy, binding} {
		c.must(c.Management.Create(c.timeout(), obj))
	}
	return func() {
		c.T.Helper()
		for _, obj := range []client.Object{binding, policy} {
			c.must(c.Management.Delete(c.timeout(), obj))
		}
	}
}
