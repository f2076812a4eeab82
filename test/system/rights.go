// SPDX-License-Identifier: Apache-2.0

package system

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// ManagerRole is what the manager may do, as it ships.
func ManagerRole() (*rbacv1.ClusterRole, error) {
	docs, err := readAll("config/rbac/role.yaml")
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, yaml.UnmarshalStrict(docs[0], role)
}
