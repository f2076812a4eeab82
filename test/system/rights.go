// SPDX-License-Identifier: Apache-2.0

package system

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// ManagerRole returns the manager's ClusterRole of config/rbac.
func ManagerRole() (*rbacv1.ClusterRole, error) {
	docs, err := readAll("config/rbac/role.yaml")
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, yaml.UnmarshalStrict(docs[0], role)
}

// Right is one verb on one resource, which may include a subresource, or be *.
type Right struct{ Group, Resource, Verb string }

// String returns the Right in one line.
func (r Right) String() string { return r.Verb + " " + r.Resource + "." + r.Group }

// UnusedRights is for TestMain. It returns 1 if all tests of the binary ran, without -short, and the manager has an
// unused right for which judged returns true. elsewhere gives the reason for rights that may be unused.
func (s *System) UnusedRights(judged func(Right) bool, elsewhere map[Right]string) int {
	if testing.Short() || flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return 0
	}
	role, err := ManagerRole()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Reading the manager's role:", err)
		return 1
	}
	events, err := s.Management.AuditEvents()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Reading what the manager did:", err)
		return 1
	}
	code := 0
	for _, r := range unusedOf(role, ManagerUser, events) {
		if judged(r) && elsewhere[r] == "" {
			fmt.Fprintln(os.Stderr, "The manager may do what no test needs:", r)
			code = 1
		}
	}
	return code
}

// unusedOf returns the rights of a role that a user did not use.
func unusedOf(role *rbacv1.ClusterRole, user string, events []auditv1.Event) []Right {
	used := map[Right]bool{}
	for i := range events {
		e := &events[i]
		if e.User.Username != user || e.ObjectRef == nil {
			continue
		}
		r := Right{e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
		if e.ObjectRef.Subresource != "" {
			r.Resource += "/" + e.ObjectRef.Subresource
		}
		used[r] = true
		used[Right{r.Group, "*", r.Verb}] = true
	}
	return slices.DeleteFunc(rightsOf(role), func(r Right) bool { return used[r] })
}

// rightsOf returns every single right of a role.
func rightsOf(role *rbacv1.ClusterRole) []Right {
	var rights []Right
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, Right{group, resource, verb})
				}
			}
		}
	}
	return rights
}
