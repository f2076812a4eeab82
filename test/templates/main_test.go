// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// shared is an API server that knows the kinds of the templates, and nobody who
// acts on them.
var shared *plane.Plane

func TestMain(m *testing.M) {
	os.Exit(plane.MainBare(m, func(p *plane.Plane) { shared = p }))
}
