// SPDX-License-Identifier: Apache-2.0

package writer_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// TestWhyNamesTheWriter in package kubectl checks the results of Last.
func TestWhoIsAPerson(t *testing.T) {
	t.Parallel()
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	cases := map[string]struct {
		reason string
		writer *writer.Writer
		hand   bool
		name   string
	}{
		"Plugin":          {"It writes for a person who says so.", &writer.Writer{Manager: writer.Plugin, Operation: update}, true, "kubectl-5spot"},
		"Edit":            {"A person had the object before them.", &writer.Writer{Manager: "kubectl-edit", Operation: update}, true, "kubectl-edit"},
		"Patch":           {"A person named the field.", &writer.Writer{Manager: "kubectl-patch", Operation: update}, true, "kubectl-patch"},
		"ThreeWayApply":   {"A file was applied, and will be again.", &writer.Writer{Manager: "kubectl-client-side-apply", Operation: update}, false, "kubectl-client-side-apply"},
		"Replace":         {"A file as well.", &writer.Writer{Manager: "kubectl-replace", Operation: update}, false, "kubectl-replace"},
		"ServerSideApply": {"The same program, and a file.", &writer.Writer{Manager: "kubectl", Operation: apply}, false, "kubectl by server-side apply"},
		"TakenName":       {"What is applied is desired state, whatever its manager is called.", &writer.Writer{Manager: "kubectl-edit", Operation: apply}, false, "kubectl-edit by server-side apply"},
		"Tool":            {"Argo CD, without server-side apply.", &writer.Writer{Manager: "argocd-controller", Operation: update}, false, "argocd-controller"},
		"Nobody":          {"Unknown is no person.", nil, false, "a program that is not recorded"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.writer.ByHand(); got != tc.hand {
				t.Errorf("%s\nby hand: %t", tc.reason, got)
			}
			if got := tc.writer.String(); got != tc.name {
				t.Errorf("got %q, want %q", got, tc.name)
			}
		})
	}
}
