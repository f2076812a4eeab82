// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A User is somebody an API server knows by certificate.
type User struct {
	// Config is ready for client libraries. It has no client-side rate limit.
	Config *rest.Config
	// Kubeconfig is the path of the same as a file.
	Kubeconfig string
}

// User makes credentials for a name and its groups. What it may do is up to RBAC;
// the group system:masters may do everything. Service accounts are users too:
// system:serviceaccount:<namespace>:<name>, with the groups
// system:serviceaccounts and system:serviceaccounts:<namespace>.
func (c *Cluster) User(name string, groups ...string) (User, error) {
	creds, err := c.ca.client(name, groups...)
	if err != nil {
		return User{}, err
	}
	file := filepath.Join(c.Dir, strings.ReplaceAll(name, ":", "-")+".kubeconfig")
	if err := clientcmd.WriteToFile(c.kubeconfig(name, creds), file); err != nil {
		return User{}, fmt.Errorf("writing kubeconfig: %w", err)
	}
	return User{Kubeconfig: file, Config: &rest.Config{
		Host:            c.URL,
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.pem, CertData: creds.cert, KeyData: creds.key},
	}}, nil
}

func (c *Cluster) kubeconfig(user string, creds pair) clientcmdapi.Config {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.ca.pem}
	cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: creds.cert, ClientKeyData: creds.key}
	cfg.Contexts[user] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: user}
	cfg.CurrentContext = user
	return *cfg
}

// Kubectl runs kubectl as administrator and returns what it printed. The error
// holds what it complained about.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with standard input, for apply -f -.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...) //nolint:gosec // arguments of a test
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+c.Admin.Kubeconfig, "HOME="+c.Dir)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
