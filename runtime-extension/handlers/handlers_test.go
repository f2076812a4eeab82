// SPDX-License-Identifier: Apache-2.0

package handlers_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/extensionconfig"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/server"
)

// TestHandlersHaveTheirDocumentedNames reads the names that people use in a ClusterClass.
func TestHandlersHaveTheirDocumentedNames(t *testing.T) {
	page, err := os.ReadFile("../../docs/clusterclass.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`Extension: ([a-z-]+)[.]`+extensionconfig.Name).FindAllStringSubmatch(string(page), -1)
	if len(named) != 3 {
		t.Fatalf("the page names the handlers %v", named)
	}
	for _, n := range named {
		if !slices.ContainsFunc(handlers.All(nil, nil), func(h server.Handler) bool { return h.Name == n[1] }) {
			t.Errorf("there is no handler %s", n[1])
		}
	}
}

// TestEveryHandlerIsAHandler: Cluster API's server checks names and signatures.
func TestEveryHandlerIsAHandler(t *testing.T) {
	s, err := server.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := handlers.All(nil, clock.RealClock{})
	if err := s.Serve(all...); err != nil {
		t.Error(err)
	}
	if err := s.Serve(all[0]); err == nil || !strings.HasPrefix(err.Error(), "handler "+all[0].Name+": ") {
		t.Errorf("two handlers of one name: %v", err)
	}
	wrong := server.Handler{Name: "wrong", Hook: all[0].Hook, Func: func(context.Context) {}}
	if err := s.Serve(wrong); err == nil {
		t.Error("a handler that cannot be called is served")
	}
}

// TestAnOutageBlocksNoCluster: Cluster API calls a manager that does not answer. Only handlers that a ClusterClass
// names cause a failure.
func TestAnOutageBlocksNoCluster(t *testing.T) {
	named := []string{"discover-variables", "validate-topology", "generate-patches"}
	for _, h := range handlers.All(nil, nil) {
		want := runtimehooksv1.FailurePolicyIgnore
		if slices.Contains(named, h.Name) {
			want = "" // Cluster API's default, Fail.
		}
		if h.FailurePolicy != want {
			t.Errorf("%s has failure policy %q, want %q", h.Name, h.FailurePolicy, want)
		}
	}
}
