// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// explore prints commands to try, and waits for Ctrl-C.
func (s *story) explore(ctx context.Context) {
	_, _ = fmt.Fprintf(s.out, `
Explore, in another terminal. Everything stays up until Ctrl-C.

  export PATH=%[1]s:%[2]s:$PATH
  export KUBECONFIG=%[3]s   # management cluster
  kubectl -n %[5]s get sm -o wide
  kubectl 5spot -n %[5]s status

  # lend the machine again
  kubectl 5spot -n %[5]s resume %[6]s

%[7]s still runs (pid %[8]d): the machine will join, and be ejected again within
seconds. Quit the program first, and the machine stays:  kill %[8]d

  export KUBECONFIG=%[4]s   # workload cluster
  kubectl get nodes

Logs: %[9]s

`, s.bin, plane.DefaultBin(), s.Management.Admin.Kubeconfig, s.workload.Admin.Kubeconfig,
		namespace, nodeName, s.game.Name(), s.game.PID(), s.dir)
	<-ctx.Done()
}
