// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// elsewhere are rights that other tests need, or none can, and why.
var elsewhere = map[system.Right]string{
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "get"}:    registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "list"}:   registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "watch"}:  registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "patch"}:  registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "delete"}: registration,
	// What does not exist is created by a patch, which takes both rights.
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "create"}:                 registration,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "get"}: registration,
}

const registration = "test/runtimesdk registers the runtime extension"

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
