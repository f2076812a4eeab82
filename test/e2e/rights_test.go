// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// elsewhere are rights that other tests need, or none can, and why.
var elsewhere = map[system.Right]string{}

// unusedRights is 1 if all tests ran, and the manager has rights that none of them
// needed.
func unusedRights() int {
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return 0
	}
	role, err := system.ManagerRole()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Reading the manager's role:", err)
		return 1
	}
	events, err := shared.Management.AuditEvents()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Reading what the manager did:", err)
		return 1
	}
	code := 0
	for _, right := range system.UnusedRights(role, system.ManagerUser, events) {
		if elsewhere[right] == "" {
			fmt.Fprintln(os.Stderr, "The manager may do what no test needs:", right)
			code = 1
		}
	}
	return code
}
