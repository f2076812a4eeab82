// SPDX-License-Identifier: Apache-2.0

// Package server answers one question: how does Cluster API reach our handlers? It is
// the only package that knows Cluster API's server of Runtime Hooks, which may change
// with any of its releases.
package server

import (
	"fmt"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// timeoutSeconds bounds one call. Handlers read a cache, so a call that takes a second
// has met a manager that is not well.
const timeoutSeconds = 5

// A Handler answers one hook.
type Handler struct {
	// Name tells it from other handlers. It is an API: ClusterClasses name handlers.
	Name string
	// Hook is Cluster API's declaration of the hook.
	Hook runtimecatalog.Hook
	// Func has the hook's request and response, after a context.
	Func runtimecatalog.Hook
	// FailurePolicy says what a call that fails means; empty is Cluster API's default,
	// Fail.
	FailurePolicy runtimehooksv1.FailurePolicy
}

// A Server serves admission webhooks and Runtime Hooks on one port.
type Server struct{ *server.Server }

// New returns a Server without handlers. Of the options, WebhookMux is not used.
func New(o webhook.Options) (*Server, error) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		return nil, fmt.Errorf("reading Cluster API's hooks: %w", err)
	}
	s, err := server.New(server.Options{
		Catalog: catalog, Host: o.Host, Port: o.Port, TLSOpts: o.TLSOpts,
		CertDir: o.CertDir, CertName: o.CertName, KeyName: o.KeyName, ClientCAName: o.ClientCAName,
	})
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Serve adds handlers, before the server is started.
func (s *Server) Serve(handlers ...Handler) error {
	for _, h := range handlers {
		e := server.ExtensionHandler{Hook: h.Hook, Name: h.Name, HandlerFunc: h.Func, TimeoutSeconds: new(int32(timeoutSeconds))}
		if h.FailurePolicy != "" {
			e.FailurePolicy = &h.FailurePolicy
		}
		if err := s.AddExtensionHandler(e); err != nil {
			return fmt.Errorf("handler %s: %w", h.Name, err)
		}
	}
	return nil
}
