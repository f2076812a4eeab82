// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// Why no test of this package needs a right.
const (
	registration = "test/runtimesdk registers the runtime extension"
	applies      = "what does not exist is created by a patch, which takes both rights"
	lists        = "caches list where an API server does not stream lists"
	diagnostics  = "the metrics endpoint asks who is asking, and is in the clear here"
	k0smotron    = "no provider of that group runs here; its objects go the way of the others"
)

// elsewhere are rights that other tests need, or none can, and why.
var elsewhere = map[right]string{
	{Group: "", Resource: "namespaces", Verb: "list"}:                                                 lists,
	{Group: "", Resource: "secrets", Verb: "list"}:                                                    lists,
	{Group: "5spot.finos.org", Resource: "machinedeletionhooks", Verb: "list"}:                        lists,
	{Group: "5spot.finos.org", Resource: "reclaimedmachines", Verb: "list"}:                           lists,
	{Group: "5spot.finos.org", Resource: "scheduledmachines", Verb: "list"}:                           lists,
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions", Verb: "list"}:              lists,
	{Group: "cluster.x-k8s.io", Resource: "clusters", Verb: "list"}:                                   lists,
	{Group: "cluster.x-k8s.io", Resource: "machines", Verb: "list"}:                                   lists,
	{Group: "bootstrap.cluster.x-k8s.io", Resource: "*", Verb: "list"}:                                lists,
	{Group: "infrastructure.cluster.x-k8s.io", Resource: "*", Verb: "list"}:                           lists,
	{Group: "controlplane.cluster.x-k8s.io", Resource: "*", Verb: "list"}:                             lists,
	{Group: "cluster.x-k8s.io", Resource: "machines", Verb: "create"}:                                 applies,
	{Group: "5spot.finos.org", Resource: "scheduledmachines", Verb: "create"}:                         applies,
	{Group: "authentication.k8s.io", Resource: "tokenreviews", Verb: "create"}:                        diagnostics,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"}:                 diagnostics,
	{Group: "5spot.finos.org", Resource: "scheduledmachines", Verb: "manage"}:                         "config/policy asks for it; test/ownerrights installs that",
	{Group: "k0smotron.io", Resource: "*", Verb: "create"}:                                            k0smotron,
	{Group: "k0smotron.io", Resource: "*", Verb: "delete"}:                                            k0smotron,
	{Group: "k0smotron.io", Resource: "*", Verb: "get"}:                                               k0smotron,
	{Group: "k0smotron.io", Resource: "*", Verb: "patch"}:                                             k0smotron,
	{Group: "k0smotron.io", Resource: "*", Verb: "list"}:                                              k0smotron,
	{Group: "k0smotron.io", Resource: "*", Verb: "watch"}:                                             k0smotron,
	{Group: "5spot.finos.org", Resource: "scheduledmachines/finalizers", Verb: "update"}:              "an admission plugin that is off here asks for it: OwnerReferencesPermissionEnforcement",
	{Group: "bootstrap.cluster.x-k8s.io", Resource: "*", Verb: "delete"}:                              "a bootstrap config without a Machine; controllers/scheduledmachine deletes one",
	{Group: "events.k8s.io", Resource: "events", Verb: "patch"}:                                       "an Event that happens again within six minutes",
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "get"}:                    registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "list"}:                   registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "watch"}:                  registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "patch"}:                  registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "delete"}:                 registration,
	{Group: "runtime.cluster.x-k8s.io", Resource: "extensionconfigs", Verb: "create"}:                 registration,
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations", Verb: "get"}: registration,
}

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
	for _, r := range unusedOf(role, system.ManagerUser, events) {
		if elsewhere[r] == "" {
			fmt.Fprintln(os.Stderr, "The manager may do what no test needs:", r)
			code = 1
		}
	}
	return code
}

// A right is one verb on one resource, which may have a subresource, or be *.
type right struct{ Group, Resource, Verb string }

func (r right) String() string { return r.Verb + " " + r.Resource + "." + r.Group }

// unusedOf returns what a role grants and a user did not ask for.
func unusedOf(role *rbacv1.ClusterRole, user string, events []auditv1.Event) []right {
	used := map[right]bool{}
	for _, e := range events {
		if e.User.Username != user || e.ObjectRef == nil {
			continue
		}
		r := right{e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		used[r] = true
		used[right{r.Group, "*", r.Verb}] = true
	}
	return slices.DeleteFunc(rightsOf(role), func(r right) bool { return used[r] })
}

// rightsOf returns every single right of a role.
func rightsOf(role *rbacv1.ClusterRole) []right {
	var rights []right
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, right{group, resource, verb})
				}
			}
		}
	}
	return rights
}
