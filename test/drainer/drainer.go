// SPDX-License-Identifier: Apache-2.0

// Package drainer is an extension that has a load balancer drain the Nodes of Machines that
// leave.
package drainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	"sigs.k8s.io/cluster-api/exp/runtime/server"
)

// Serve serves the extension until ctx ends, with tls.crt and tls.key of a directory. balancer
// is the address of the load balancer.
func Serve(ctx context.Context, port int, certDir, balancer string) error {
	catalog := runtimecatalog.New()
	if err := errors.Join(hooksv1.AddToCatalog(catalog), runtimehooksv1.AddToCatalog(catalog)); err != nil {
		return err
	}
	s, err := server.New(server.Options{Catalog: catalog, Port: port, CertDir: certDir})
	if err != nil {
		return err
	}
	if err := s.AddExtensionHandler(server.ExtensionHandler{
		Hook: hooksv1.BeforeMachineDelete, Name: "before-machine-delete", HandlerFunc: drainer{balancer}.beforeMachineDelete,
	}); err != nil {
		return err
	}
	return s.Start(ctx)
}

type drainer struct{ balancer string }

// beforeMachineDelete answers "call again later" while the Node has connections.
func (d drainer) beforeMachineDelete(ctx context.Context, req *hooksv1.BeforeMachineDeleteRequest, res *hooksv1.BeforeMachineDeleteResponse) {
	res.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	node := req.Machine.Status.NodeRef.Name
	if req.Phase != hooksv1.BeforeDrain || node == "" {
		return
	}
	switch left, err := d.drain(ctx, node); {
	case err != nil:
		res.SetStatus(runtimehooksv1.ResponseStatusFailure)
		res.SetMessage(err.Error())
	case left > 0:
		res.SetMessage(fmt.Sprintf("%s has %d connections", node, left))
		res.SetRetryAfterSeconds(5)
	}
}

// drain makes the load balancer send no new connections to a Node, and returns how many are
// left. It is idempotent.
func (d drainer) drain(ctx context.Context, node string) (left int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, d.balancer+"/drain/"+url.PathEscape(node), nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the load balancer answered %s", answer.Status)
	}
	err = json.NewDecoder(answer.Body).Decode(&left)
	return left, err
}
