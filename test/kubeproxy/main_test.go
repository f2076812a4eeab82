// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy tests that kube-proxy reports to load balancers that a Node is leaving.
package kubeproxy

import (
	"os"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

var shared *plane.Plane

func TestMain(m *testing.M) {
	os.Exit(plane.MainBare(m, func(p *plane.Plane) { shared = p }))
}
