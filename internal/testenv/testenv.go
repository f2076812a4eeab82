// SPDX-License-Identifier: Apache-2.0

// Package testenv provides a real API server with the kinds of this project and of Cluster API to tests. It is for
// tests only.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
)

// StartTimeout bounds each step of the start of an API server. The defaults of envtest, 10 s and 20 s, are too short if
// several start at once on two cores.
const StartTimeout = 2 * time.Minute

// assets is envtest's environment variable for the directory of etcd and kube-apiserver.
const assets = "KUBEBUILDER_ASSETS"

// A Server is a running API server.
type Server struct {
	// Config has the credentials of a cluster administrator.
	Config *rest.Config
	// Client reads from the API server, without a cache.
	Client client.WithWatch

	mu         sync.Mutex
	namespaces map[*testing.T][]string
}

// Main runs the tests of a package with a Server; call it from TestMain. It returns the exit code. If etcd and
// kube-apiserver are missing, it prints how to get them and returns 1.
func Main(m *testing.M, use func(*Server), options ...func(*envtest.Environment)) int {
	if err := findAssets(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	env, s, err := start(options)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Starting the API server:", err)
		return 1
	}
	use(s)
	code := m.Run()
	if err := env.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Stopping the API server:", err)
		return 1
	}
	return code
}

// findAssets sets the environment variable to the Makefile's binaries, unless it is set already.
func findAssets() error {
	if os.Getenv(assets) != "" {
		return nil
	}
	root, _, err := directories()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "bin", "plane")
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return fmt.Errorf("etcd and kube-apiserver are missing: run `make plane-kube`, or let %s name their directory: %w", assets, err)
	}
	return os.Setenv(assets, dir)
}

func start(options []func(*envtest.Environment)) (*envtest.Environment, *Server, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme, runtimev1.AddToScheme, v1alpha1.AddToScheme, expv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, nil, err
		}
	}
	root, capi, err := directories()
	if err != nil {
		return nil, nil, err
	}
	env := &envtest.Environment{
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: StartTimeout,
		ControlPlaneStopTimeout:  StartTimeout,
		CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: StartTimeout},
		CRDDirectoryPaths:        []string{filepath.Join(root, "config", "crd", "bases"), filepath.Join(capi, "core", "config", "crd", "bases")},
		CRDs: []*apiextensionsv1.CustomResourceDefinition{
			builder.GenericBootstrapConfigCRD.DeepCopy(), builder.GenericBootstrapConfigTemplateCRD.DeepCopy(),
			builder.GenericInfrastructureMachineCRD.DeepCopy(), builder.GenericInfrastructureMachineTemplateCRD.DeepCopy(),
			builder.GenericControlPlaneCRD.DeepCopy(),
		},
	}
	// No data has to survive a test, so that etcd does not sync to disk.
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	for _, option := range options {
		option(env)
	}
	config, err := env.Start()
	if err != nil {
		return nil, nil, errors.Join(err, env.Stop())
	}
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, errors.Join(err, env.Stop())
	}
	return env, &Server{Config: config, Client: c, namespaces: map[*testing.T][]string{}}, nil
}

// directories returns the directories of this module and of Cluster API, which contain the CRDs.
func directories() (root, capi string, err error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/finos/cluster-api-addon-provider-5spot", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return "", "", fmt.Errorf("finding modules: %w", err)
	}
	dirs := strings.Fields(string(out))
	if len(dirs) != 2 {
		return "", "", fmt.Errorf("finding modules: %q", out)
	}
	return dirs[0], dirs[1], nil
}

// Namespace creates a namespace for a test.
func (s *Server) Namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := s.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namespaces[t] = append(s.namespaces[t], ns.Name)
	return ns.Name
}

// namespacesOf returns the namespaces that a test created.
func (s *Server) namespacesOf(t *testing.T) []string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.namespaces[t])
}
