// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"os"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// shared is an API server with the kinds of the templates and without their controllers.
var shared *plane.Plane

func TestMain(m *testing.M) {
	os.Exit(plane.MainBare(m, func(p *plane.Plane) { shared = p }))
}
