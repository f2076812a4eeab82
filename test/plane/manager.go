// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managerOptions describes a manager that runs on this machine for a cluster.
type managerOptions struct {
	name      string
	manifests *manifests
	args, env []string
	// plain means a manager without webhooks and with metrics address 0.
	plain bool
	// urlFlag is the flag for the URL of the webhook server. Empty means none.
	urlFlag string
	// path is the program. Empty means the plane's program of that name.
	path string
	// account is its service account. Zero means a service account with all permissions.
	account client.ObjectKey
}

// newManager prepares a manager: its user, its webhook certificate, and its manifests in the cluster.
func (p *Plane) newManager(ctx context.Context, c *Cluster, o managerOptions) (*Process, error) {
	free, err := p.ports.takeMany(3)
	if err != nil {
		return nil, err
	}
	if o.path == "" {
		o.path = filepath.Join(p.bin, o.name)
	}
	if o.account.Name == "" {
		o.account = client.ObjectKey{Namespace: "plane-system", Name: o.name}
		if err := c.grantAll(ctx, o.account); err != nil {
			return nil, fmt.Errorf("granting %s everything: %w", o.name, err)
		}
	}
	user, err := c.ServiceAccount(ctx, o.account)
	if err != nil {
		return nil, err
	}
	args := []string{"--health-addr=" + hostPort(free[0]), "--kubeconfig=" + user.Kubeconfig}
	if !o.plain {
		serving, err := c.ca.server()
		if err != nil {
			return nil, err
		}
		certs := c.path(o.name + "-webhook")
		if err := errors.Join(serving.write(certs), os.WriteFile(filepath.Join(certs, "ca.crt"), c.ca.pem, 0o600)); err != nil {
			return nil, err
		}
		if o.urlFlag != "" {
			args = append(args, o.urlFlag+"=https://"+hostPort(free[1]))
		}
		args = append(args, fmt.Sprintf("--webhook-port=%d", free[1]), "--webhook-cert-dir="+certs, "--diagnostics-address="+hostPort(free[2]))
		o.manifests.pointAt(free[1], c.ca.pem)
	}
	if err := c.install(ctx, o.manifests); err != nil {
		return nil, fmt.Errorf("installing %s: %w", o.name, err)
	}
	url := "http://" + hostPort(free[0]) + "/readyz"
	return &Process{
		name: o.name, path: o.path, dir: c.Dir,
		args: append(args, o.args...), env: o.env,
		ready: func(ctx context.Context) error { return get(ctx, insecureClient, url) },
	}, nil
}

func (c *Cluster) grantAll(ctx context.Context, account client.ObjectKey) error {
	err := c.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Namespace + "-" + account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
