// SPDX-License-Identifier: Apache-2.0

// Package system runs 5-Spot on the local plane: the manager's released program, with exactly its released permissions,
// and the reclaim agent. Tests, the demo and the benchmarks use it. It asserts nothing.
package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// ManagerName is the name of the manager in its user agent.
const ManagerName = "5spot-controller-manager"

// ManagerAccount is the manager's service account.
var ManagerAccount = client.ObjectKey{Namespace: "5spot-system", Name: "fivespot-manager"}

// ManagerUser is the name of the manager's user in audit logs.
var ManagerUser = plane.ServiceAccountName(ManagerAccount)

// Unlimited are the arguments of a manager that does not limit departures, for tests of other features.
var Unlimited = []string{"--departure-cap-fraction=0", "--wipe-guard=false"}

// Options are the options of Start. The zero value is valid.
type Options struct {
	// Plane is the local plane to start.
	Plane plane.Options
	// Bin is the directory of manager, reclaim-agent and kubectl-5spot. Empty means $FIVESPOT_BIN, or else bin of the
	// repository.
	Bin string
	// RuntimeExtension makes the manager register its runtime extension, with an address of this machine.
	RuntimeExtension bool
	// Metered keeps the manager's default limits of departures. Otherwise, it gets the arguments in Unlimited.
	Metered bool
	// ManagerArgs are appended to the manager's command line.
	ManagerArgs []string
}

// System is 5-Spot on a local plane.
type System struct {
	*plane.Plane
	// Manager is the manager's process.
	Manager *plane.Process

	bin string
}

// Start starts a local plane and 5-Spot on it. Stop it with Stop.
func Start(ctx context.Context, o Options) (*System, error) {
	p, err := plane.Start(ctx, o.Plane)
	if err != nil {
		return nil, err
	}
	s, err := install(ctx, p, o)
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return s, nil
}

func install(ctx context.Context, p *plane.Plane, o Options) (*System, error) {
	s := &System{Plane: p, bin: o.Bin}
	if s.bin == "" {
		s.bin = DefaultBin()
	}
	if _, err := os.Stat(s.Program("manager")); err != nil {
		return nil, fmt.Errorf("the programs of 5-Spot are not in %s: run `make build` or set FIVESPOT_BIN: %w", s.bin, err)
	}
	scheme := p.Management.Client.Scheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), expv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	var manifests [][]byte
	for _, part := range []string{"crd", "webhook"} {
		text, err := p.Management.Kubectl(ctx, "kustomize", filepath.Join(Repository(), "config", part))
		if err != nil {
			return nil, fmt.Errorf("building config/%s: %w", part, err)
		}
		manifests = append(manifests, []byte(text))
	}
	if err := s.grant(ctx); err != nil {
		return nil, fmt.Errorf("granting the manager its rights: %w", err)
	}
	addon := plane.AddonOptions{
		Name: ManagerName, Path: s.Program("manager"), Manifests: manifests, ServiceAccount: ManagerAccount,
		Args: o.ManagerArgs,
	}
	if !o.Metered {
		addon.Args = slices.Concat(Unlimited, o.ManagerArgs)
	}
	if o.RuntimeExtension {
		addon.URLFlag = "--runtime-extension-url"
	}
	var err error
	s.Manager, err = p.NewAddon(ctx, addon)
	if err != nil {
		return nil, err
	}
	return s, s.Manager.Start(ctx)
}

// grant binds only the roles in config/rbac to the manager's service account.
func (s *System) grant(ctx context.Context) error {
	role, err := ManagerRole()
	if err != nil {
		return err
	}
	docs, err := readAll("config/rbac/own_namespace_role.yaml")
	if err != nil {
		return err
	}
	own := &rbacv1.Role{}
	if err := yaml.UnmarshalStrict(docs[0], own); err != nil {
		return err
	}
	own.Namespace = ManagerAccount.Namespace
	if err := s.Management.EnsureNamespace(ctx, own.Namespace); err != nil {
		return err
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ManagerAccount.Namespace, Name: ManagerAccount.Name}}
	for _, obj := range []client.Object{
		role, own,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: own.Name}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name},
		},
	} {
		if err := s.Management.Client.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// Program returns the path of one of 5-Spot's programs.
func (s *System) Program(name string) string { return filepath.Join(s.bin, name) }

// DefaultBin returns $FIVESPOT_BIN, or else bin of the repository.
func DefaultBin() string {
	if bin := os.Getenv("FIVESPOT_BIN"); bin != "" { //nolint:forbidigo // where the programs are is the caller's to say
		return bin
	}
	return filepath.Join(Repository(), "bin")
}

// Repository returns the root of the repository.
func Repository() string { return plane.Repository() }

func readAll(paths ...string) ([][]byte, error) {
	var docs [][]byte
	for _, path := range paths {
		b, err := os.ReadFile(filepath.Join(Repository(), path)) //nolint:gosec // files of this repository
		if err != nil {
			return nil, err
		}
		docs = append(docs, b)
	}
	return docs, nil
}
