// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/bootstrap"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	configPath = flag.String("e2e.config", "", "file that says what to run on; without it nothing is run")
	artifacts  = flag.String("e2e.artifacts-folder", "_artifacts", "where logs and objects are left")
	keep       = flag.Bool("e2e.skip-resource-cleanup", false, "leave everything as it is at the end")
)

// Objects that BeforeSuite creates for the specs.
var (
	config           *clusterctl.E2EConfig
	clusterctlConfig string
	provider         bootstrap.ClusterProvider
	management       framework.ClusterProxy

	// watches ends with the suite, and with it the streams of logs.
	watches, endWatches = context.WithCancel(context.Background())
)

// TestE2E runs the specs.
func TestE2E(t *testing.T) {
	if *configPath == "" {
		t.Skip("it takes Docker: run `make test-e2e-kind`")
	}
	ctrl.SetLogger(klog.Background())
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "5-Spot on kind")
}

var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	gomega.Expect(os.MkdirAll(*artifacts, 0o750)).To(gomega.Succeed())
	config = clusterctl.LoadE2EConfig(ctx, clusterctl.LoadE2EConfigInput{ConfigPath: *configPath})
	gomega.Expect(config.MustGetVariable(cni)).To(gomega.BeAnExistingFile(), "%s names the manifests of a network plugin", cni)
	clusterctlConfig = clusterctl.CreateRepository(ctx, clusterctl.CreateRepositoryInput{
		E2EConfig: config, RepositoryFolder: filepath.Join(*artifacts, "repository"),
	})

	ginkgo.By("Making a management cluster on kind")
	provider = bootstrap.CreateKindBootstrapClusterAndLoadImages(ctx, bootstrap.CreateKindBootstrapClusterAndLoadImagesInput{
		Name:               config.ManagementClusterName,
		KubernetesVersion:  config.MustGetVariable("KUBERNETES_VERSION_MANAGEMENT"),
		RequiresDockerSock: config.HasDockerProvider(),
		Images:             config.Images,
		LogFolder:          filepath.Join(*artifacts, "kind"),
	})
	management = framework.NewClusterProxy("management", provider.GetKubeconfigPath(), scheme(),
		framework.WithMachineLogCollector(framework.DockerLogCollector{}))

	ginkgo.By("Installing Cluster API and 5-Spot with clusterctl")
	clusterctl.InitManagementClusterAndWatchControllerLogs(watches, clusterctl.InitManagementClusterAndWatchControllerLogsInput{
		ClusterProxy:            management,
		ClusterctlConfigPath:    clusterctlConfig,
		InfrastructureProviders: config.InfrastructureProviders(),
		AddonProviders:          config.AddonProviders(),
		LogFolder:               filepath.Join(*artifacts, "management"),
		// It would need a certificate for each manager.
		DisableMetricsCollection: true,
	}, config.GetIntervals("default", "wait-controllers")...)
})

var _ = ginkgo.AfterSuite(func(ctx context.Context) {
	endWatches()
	if *keep {
		return
	}
	if management != nil {
		management.Dispose(ctx)
	}
	if provider != nil {
		provider.Dispose(ctx)
	}
})

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	framework.TryAddDefaultSchemes(s)
	gomega.Expect(clientgoscheme.AddToScheme(s)).To(gomega.Succeed())
	gomega.Expect(v1alpha1.AddToScheme(s)).To(gomega.Succeed())
	return s
}
