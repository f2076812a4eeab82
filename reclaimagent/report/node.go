// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

// ErrHostIdentity means that the Node describes another machine, or none. Nothing was written.
var ErrHostIdentity = errors.New("node is not this machine")

// node is the part of a Node that the agent reads.
type node struct {
	Metadata struct {
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Taints []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo struct {
			MachineID string `json:"machineID"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

type taint struct {
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// reclaimTaint is the taint of a Node whose machine is being returned to its owner.
var reclaimTaint = taint{Key: reclaim.NodeTaint, Effect: "NoExecute"}

func (n *node) requested() bool { return reclaim.Requested(n.Metadata.Annotations) }

// ReadMachineID returns the machine ID in the file at path, without white space. A missing or blank file is an error.
func ReadMachineID(path string) (string, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // an argument of the agent
	if err != nil {
		return "", fmt.Errorf("reading machine id: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", fmt.Errorf("reading machine id: %s is blank", path)
	}
	return id, nil
}

// identify compares the machine ID with the Node's. An empty machine ID skips the check.
func (r *Reporter) identify(n *node) error {
	got := strings.TrimSpace(n.Status.NodeInfo.MachineID)
	if r.o.MachineID == "" || got == r.o.MachineID {
		return nil
	}
	return fmt.Errorf("%w: Node %s has machine id %q, this machine has %q", ErrHostIdentity, r.o.Node, got, r.o.MachineID)
}

func (r *Reporter) path() string { return "/api/v1/nodes/" + url.PathEscape(r.o.Node) }

// get reads the Node, or only its metadata, depending on accept.
func (r *Reporter) get(ctx context.Context, accept string) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n := &node{}
	if err := r.o.Client.Do(ctx, kubeapi.Request{Path: r.path(), Accept: accept}, n); err != nil {
		return nil, fmt.Errorf("getting Node %s: %w", r.o.Node, err)
	}
	return n, nil
}

// getIdentified reads the Node. It returns [ErrHostIdentity] if the Node describes another machine.
func (r *Reporter) getIdentified(ctx context.Context) (*node, error) {
	n, err := r.get(ctx, "")
	if err != nil {
		return nil, err
	}
	return n, r.identify(n)
}
