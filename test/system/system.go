// SPDX-License-Identifier: Apache-2.0

// Package system runs 5-Spot on the local plane: the manager as the process that
// ships, with exactly the rights that ship, and the reclaim agent. Tests, the demo
// and the benchmarks build on it; it asserts nothing.
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

// ManagerName is the name of the manager, as its user agent shows it.
const ManagerName = "5spot-controller-manager"

// ManagerAccount is the service account of the manager, as it ships.
var ManagerAccount = client.ObjectKey{Namespace: "5spot-system", Name: "fivespot-manager"}

// ManagerUser is the user of the manager, as the audit log shows it.
var ManagerUser = plane.ServiceAccountName(ManagerAccount)

// Unmetered are arguments of a manager whose machines leave as soon as they are to, so that
// what is tested is not how many leave at once.
var Unmetered = []string{"--departure-cap-fraction=0", "--wipe-guard=false"}

// Options say how to run 5-Spot. The zero value is good.
type Options struct {
	// Plane is the local plane to start.
	Plane plane.Options
	// Bin holds manager, reclaim-agent and kubectl-5spot; empty means $FIVESPOT_BIN,
	// or else bin of the repository.
	Bin string
	// RuntimeExtension has the manager register its runtime extension, at the address
	// of this machine.
	RuntimeExtension bool
	// Metered has machines leave as they do where the manager ships; else they are Unmetered.
	Metered bool
	// ManagerArgs are appended to the manager's command line.
	ManagerArgs []string
}

// A System is 5-Spot on a local plane.
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
		addon.Args = slices.Concat(Unmetered, o.ManagerArgs)
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

// grant binds the roles that ship to the manager's service account, and nothing
// else.
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

// DefaultBin is $FIVESPOT_BIN, or else bin of the repository.
func DefaultBin() string {
	if bin := os.Getenv("FIVESPOT_BIN"); bin != "" { //nolint:forbidigo // where the programs are is the caller's to say
		return bin
	}
	return filepath.Join(Repository(), "bin")
}

// Repository is the root of the repository.
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
