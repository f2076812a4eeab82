// SPDX-License-Identifier: Apache-2.0

// Package server serves the handlers to Cluster API. Only this package uses Cluster API's server of Runtime Hooks,
// which may change with each release.
package server

import (
	"fmt"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// timeoutSeconds bounds one call. Handlers read a cache, so a call that takes a second indicates a problem of the
// manager.
const timeoutSeconds = 5

// Handler handles one hook.
type Handler struct {
	// Name identifies the handler. It is part of the API, because ClusterClasses refer to it.
	Name string
	// Hook is Cluster API's declaration of the hook.
	Hook runtimecatalog.Hook
	// Func is the handler function: it has a context and the hook's request and response.
	Func runtimecatalog.Hook
	// FailurePolicy is what a failed call means. Empty means Cluster API's default, Fail.
	FailurePolicy runtimehooksv1.FailurePolicy
}

// Server serves admission webhooks and Runtime Hooks on one port.
type Server struct{ *server.Server }

// New returns a Server without handlers. It ignores WebhookMux of the options.
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

// Serve adds handlers. Call it before the server starts.
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
