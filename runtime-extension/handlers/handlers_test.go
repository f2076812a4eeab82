// SPDX-License-Identifier: Apache-2.0

package handlers_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/server"
)

// TestEveryHandlerIsAHandler has Cluster API's server judge names and signatures.
func TestEveryHandlerIsAHandler(t *testing.T) {
	s, err := server.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := handlers.All(nil, clock.RealClock{}, "spec.clusterName")
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
