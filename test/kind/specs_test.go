// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"path/filepath"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// cni is the variable that names the network plugin.
	cni = "CNI"
	// flavor is the template of the Cluster.
	flavor = "scheduled-kubeadm-docker"
	// name is the name of the Cluster and its namespace.
	name = "fivespot"
	// image runs until it is stopped. Every node of kind has it.
	image = "registry.k8s.io/pause:3.10"
)

var _ = ginkgo.Describe("A ScheduledMachine of containers", ginkgo.Ordered, func() {
	var (
		result     = &clusterctl.ApplyClusterTemplateAndWaitResult{}
		namespace  *corev1.Namespace
		endEvents  context.CancelFunc
		inCluster  specs.Cluster
		asTemplate v1alpha1.ScheduledMachine
	)

	ginkgo.BeforeAll(func(ctx context.Context) {
		// AfterAll would run before the last spec has cleaned up, which needs the Cluster.
		ginkgo.DeferCleanup(func(ctx context.Context) {
			if namespace == nil {
				return
			}
			framework.DumpSpecResourcesAndCleanup(ctx, name, management, clusterctlConfig, *artifacts, namespace, endEvents,
				result.Cluster, config.GetIntervals, *keep)
		})
		namespace, endEvents = framework.CreateNamespaceAndWatchEvents(watches, framework.CreateNamespaceAndWatchEventsInput{
			Creator: management.GetClient(), ClientSet: management.GetClientSet(), Name: name,
			LogFolder: filepath.Join(*artifacts, name),
		})
		clusterctl.ApplyClusterTemplateAndWait(ctx, clusterctl.ApplyClusterTemplateAndWaitInput{
			ClusterProxy:                 management,
			ConfigCluster:                template(config, clusterctlConfig, management.GetKubeconfigPath(), filepath.Join(*artifacts, name)),
			CNIManifestPath:              config.MustGetVariable(cni),
			WaitForClusterIntervals:      config.GetIntervals(name, "wait-cluster"),
			WaitForControlPlaneIntervals: config.GetIntervals(name, "wait-control-plane"),
		}, result)
		step, err := time.ParseDuration(config.Intervals["default/step"][0])
		gomega.Expect(err).ToNot(gomega.HaveOccurred())
		inCluster = specs.Cluster{
			Management: uncached(management), Workload: uncached(management.GetWorkloadCluster(ctx, name, name)),
			Namespace: name, Image: image, Patience: step,
			NewScheduledMachine: func(box string) *v1alpha1.ScheduledMachine {
				sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-" + box}}
				asTemplate.Spec.DeepCopyInto(&sm.Spec)
				sm.Spec.Schedule = specs.Always()
				return sm
			},
		}
		gomega.Expect(inCluster.Management.Get(ctx, client.ObjectKey{Namespace: name, Name: name + "-desk-1"}, &asTemplate)).To(gomega.Succeed())
		gomega.Expect(inCluster.Workload.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(gomega.Succeed())
	})

	// here is the Cluster of the specs, with the T of the running spec.
	here := func() *specs.Cluster {
		c := inCluster
		c.T = ginkgo.GinkgoT()
		return &c
	}

	ginkgo.It("joins in its window and leaves when it closes", func() { specs.PhaseFollowsTheWindow(here()) })
	ginkgo.It("evicts its pods and names who blocks it", func() { specs.DepartureEvictsAndNamesWhoBlocksIt(here()) })
	ginkgo.It("goes at once by the kill switch", func() { specs.KillSwitchTakesTheMachineOutWithoutDrain(here()) })
	ginkgo.It("goes back to its owner who asks by the Node", func() { specs.OwnerGetsTheMachineBack(here(), nil) })
})

// template is the input with which clusterctl fills in the template of the Cluster. Its machine has a closed window:
// specs create their own.
func template(c *clusterctl.E2EConfig, clusterctlConfig, kubeconfig, logs string) clusterctl.ConfigClusterInput {
	return clusterctl.ConfigClusterInput{
		KubeconfigPath: kubeconfig, ClusterctlConfigPath: clusterctlConfig, LogFolder: logs,
		InfrastructureProvider: "docker", Flavor: flavor, Namespace: name, ClusterName: name,
		KubernetesVersion:        c.MustGetVariable("KUBERNETES_VERSION"),
		ControlPlaneMachineCount: new(int64(1)),
		WorkerMachineCount:       new(int64(0)),
		ClusterctlVariables:      map[string]string{"FIVESPOT_SCHEDULE_HOURS": specs.Closed().HoursOfDay[0]},
	}
}

// uncached returns a client that reads from the API server, and can watch.
func uncached(proxy framework.ClusterProxy) client.WithWatch {
	c, err := client.NewWithWatch(proxy.GetRESTConfig(), client.Options{Scheme: proxy.GetScheme()})
	gomega.Expect(err).ToNot(gomega.HaveOccurred())
	return c
}
