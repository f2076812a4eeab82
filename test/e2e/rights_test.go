// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// The reasons why no test of this package needs a permission.
const (
	registration = "test/runtimesdk registers the runtime extension"
	applies      = "what does not exist is created by a patch, which takes both rights"
	lists        = "caches list where an API server does not stream lists"
	diagnostics  = "the metrics endpoint asks who is asking, and is in the clear here"
	k0smotron    = "no provider of that group runs here; its objects go the way of the others"
)

// elsewhere are permissions that other tests need, or that no test can use, with the reason.
var elsewhere = map[system.Right]string{
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

// alwaysOn selects the permissions of features without a gate. test/detach checks the others.
func alwaysOn(r system.Right) bool { return !strings.HasPrefix(r.Group, "exp.") }
