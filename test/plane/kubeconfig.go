// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// User is a user of an API server, with a certificate or a token.
type User struct {
	// Config is the client configuration. It has no client-side rate limit.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same data.
	Kubeconfig string
}

// User returns credentials for a name and its groups. RBAC controls its permissions. The group system:masters has all
// permissions.
func (c *Cluster) User(name string, groups ...string) (User, error) {
	info, err := c.certificate(name, groups...)
	if err != nil {
		return User{}, err
	}
	return c.user(name, info)
}

func (c *Cluster) certificate(name string, groups ...string) (*clientcmdapi.AuthInfo, error) {
	creds, err := c.ca.client(name, groups...)
	return &clientcmdapi.AuthInfo{ClientCertificateData: creds.cert, ClientKeyData: creds.key}, err
}

// Serving returns a certificate for a server on this machine, and its key. CA has signed it.
func (c *Cluster) Serving() (cert, key []byte, err error) {
	p, err := c.ca.server()
	return p.cert, p.key, err
}

// CA returns the certificate of the cluster's authority.
func (c *Cluster) CA() []byte { return c.ca.pem }

// ServiceAccount returns a token of a service account. It creates the service account and its namespace if necessary.
// The API server caches the result of a token check, but checks a certificate with every request.
func (c *Cluster) ServiceAccount(ctx context.Context, key client.ObjectKey) (User, error) {
	if err := c.EnsureNamespace(ctx, key.Namespace); err != nil {
		return User{}, err
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if err := c.Client.Create(ctx, sa); err != nil && !apierrors.IsAlreadyExists(err) {
		return User{}, fmt.Errorf("creating service account: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(24 * time.Hour / time.Second))}}
	if err := c.Client.SubResource("token").Create(ctx, sa, request); err != nil {
		return User{}, fmt.Errorf("requesting token of service account %s: %w", key, err)
	}
	return c.user(ServiceAccountName(key), &clientcmdapi.AuthInfo{Token: request.Status.Token})
}

// PodUser returns the credentials that the kubelet gives to a pod, which must exist: a token of its service account
// that is bound to the pod.
func (c *Cluster) PodUser(ctx context.Context, pod *corev1.Pod) (User, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if err := c.Client.SubResource("token").Create(ctx, sa, request); err != nil {
		return User{}, fmt.Errorf("requesting token of pod %s: %w", pod.Name, err)
	}
	return c.user("pod:"+pod.Namespace+":"+pod.Name, &clientcmdapi.AuthInfo{Token: request.Status.Token})
}

// ServiceAccountName returns the user name of a service account.
func ServiceAccountName(key client.ObjectKey) string {
	return "system:serviceaccount:" + key.Namespace + ":" + key.Name
}

func (c *Cluster) user(name string, info *clientcmdapi.AuthInfo) (User, error) {
	cfg := c.kubeconfig(name, info)
	file := filepath.Join(c.Dir, strings.ReplaceAll(name, ":", "-")+".kubeconfig")
	if err := clientcmd.WriteToFile(cfg, file); err != nil {
		return User{}, fmt.Errorf("writing kubeconfig: %w", err)
	}
	config, err := clientcmd.NewDefaultClientConfig(cfg, nil).ClientConfig()
	if err != nil {
		return User{}, fmt.Errorf("reading kubeconfig: %w", err)
	}
	config.QPS = -1
	return User{Kubeconfig: file, Config: config}, nil
}

func (c *Cluster) kubeconfig(user string, info *clientcmdapi.AuthInfo) clientcmdapi.Config {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.ca.pem}
	cfg.AuthInfos[user] = info
	cfg.Contexts[user] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: user}
	cfg.CurrentContext = user
	return *cfg
}

// Environ returns the environment for programs of an administrator. It selects this cluster, the programs of the plane,
// and home as their home directory. clusterctl does not check for newer versions.
func (c *Cluster) Environ(home string) []string {
	return append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "KUBECONFIG="+c.Admin.Kubeconfig,
		"PATH="+c.bin+":"+os.Getenv("PATH"), "GOPROXY=off", "CLUSTERCTL_DISABLE_VERSIONCHECK=true") //nolint:forbidigo // theirs goes on
}

// Kubectl runs kubectl as administrator and returns its standard output. The error contains its standard error.
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
