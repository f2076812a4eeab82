// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// helperEnv makes this test binary start a plane in the given directory and wait.
const helperEnv = "PLANE_TEST_HELPER_DIR"

func helper() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := plane.Start(ctx, plane.Options{Dir: os.Getenv(helperEnv), Components: []plane.Component{plane.Core}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready", p.Management.URL)
	select {}
}
