// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// Kinds of providers, as their CRDs name them.
var (
	bootstrapKinds = []string{
		"KubeadmConfig", "K0sWorkerConfig", "RKE2Config", "KThreesConfig", "TalosConfig", "MicroK8sConfig", "EKSConfig", "NodeadmConfig",
		"EtcdadmConfig", "OcneConfig", "OpenshiftAssistedConfig", "PlaneConfig", "GenericBootstrapConfig", "TestBootstrapConfig",
	}
	infrastructureKinds = []string{
		"AWSMachine", "AzureMachine", "GCPMachine", "VSphereMachine", "VCDMachine", "Metal3Machine", "KubevirtMachine", "ByoMachine", "OpenStackMachine",
		"DevMachine", "DockerMachine", "InMemoryMachine", "RemoteMachine", "HCloudMachine", "HetznerBareMetalMachine", "MaasMachine", "ProxmoxMachine",
		"IBMVPCMachine", "IBMPowerVSMachine", "OCIMachine", "NutanixMachine", "TinkerbellMachine", "MicrovmMachine", "LinodeMachine", "DOMachine",
		"CloudStackMachine", "PacketMachine", "VultrMachine", "MetalMachine", "PlaneMachine", "GenericInfrastructureMachine", "TestInfrastructureMachine",
	}
	// noBootstrapKinds and noInfrastructureKinds are kinds of the same groups, and other names, to which no Machine may
	// refer.
	noBootstrapKinds = []string{
		"KubeadmConfigTemplate", "KubeadmConfigList", "kubeadmconfig", "kubeadmConfig", "List", "Config", "ConfigTemplate", "JoinTokenRequest", "Cluster", "DevMachine",
	}
	noInfrastructureKinds = []string{
		"AWSClusterStaticIdentity", "AWSClusterRoleIdentity", "AzureClusterIdentity", "VSphereClusterIdentity", "AWSCluster", "AWSManagedCluster", "RemoteCluster",
		"AWSMachineTemplate", "AWSMachinePool", "AWSManagedMachinePool", "AzureASOManagedMachinePool", "AWSMachineList", "awsmachine", "awsMachine", "List",
		"Machine", "VSphereVM", "VSphereFailureDomain", "VSphereDeploymentZone", "Metal3Data", "Metal3DataTemplate", "Metal3Remediation", "ByoHost",
		"K8sInstallerConfig", "HetznerBareMetalHost", "HCloudRemediation", "ProxmoxCluster", "OpenStackServer", "IBMPowerVSImage", "FakeClusterIdentity",
		"JoinTokenRequest", "Cluster", "KubeadmConfig",
	}
)

// TestKindsThatAMachineMayReferTo checks part.word, inline and by template.
func TestKindsThatAMachineMayReferTo(t *testing.T) {
	for kind, allowed := range merged(bootstrapKinds, noBootstrapKinds) {
		wantAllowed(t, "bootstrap config "+kind, allowed, func(m *v1alpha1.ScheduledMachine) { m.Spec.BootstrapSpec.Kind = kind })
		wantAllowed(t, "template of bootstrap config "+kind, allowed, templates(kind+"Template"))
	}
	for kind, allowed := range merged(infrastructureKinds, noInfrastructureKinds) {
		wantAllowed(t, "infrastructure machine "+kind, allowed, func(m *v1alpha1.ScheduledMachine) { m.Spec.InfrastructureSpec.Kind = kind })
		wantAllowed(t, "template of infrastructure machine "+kind, allowed, func(m *v1alpha1.ScheduledMachine) {
			templates("KubeadmConfigTemplate")(m)
			m.Spec.InfrastructureTemplateRef.Kind = kind + "Template"
		})
	}
}

func merged(yes, no []string) map[string]bool {
	all := map[string]bool{}
	for _, kind := range yes {
		all[kind] = true
	}
	for _, kind := range no {
		all[kind] = false
	}
	return all
}

func wantAllowed(t *testing.T, what string, allowed bool, change func(*v1alpha1.ScheduledMachine)) {
	t.Helper()
	errs := validation.ScheduledMachine(good(change))
	if (len(errs) == 0) != allowed || len(errs) > 1 || len(errs) == 1 && !strings.Contains(errs[0].Detail, "it begins with a capital and ends in ") {
		t.Errorf("%s: want allowed %t, got %v", what, allowed, errs)
	}
}

func TestKinds(t *testing.T) {
	text := func(kinds []validation.NamedKind) []string {
		var out []string
		for _, k := range kinds {
			out = append(out, k.Path.String()+" "+k.Named+": "+k.Kind.String())
		}
		return out
	}
	mixed := good(templates("KubeadmConfigTemplate"))
	mixed.Spec.InfrastructureSpec, mixed.Spec.InfrastructureTemplateRef = good(nil).Spec.InfrastructureSpec, v1alpha1.TemplateReference{}
	want := []string{
		"spec.bootstrapTemplateRef KubeadmConfigTemplate: bootstrap.cluster.x-k8s.io/v1beta2, Kind=KubeadmConfigTemplate",
		"spec.bootstrapTemplateRef KubeadmConfigTemplate: bootstrap.cluster.x-k8s.io/v1beta2, Kind=KubeadmConfig",
		"spec.infrastructureSpec DevMachine: infrastructure.cluster.x-k8s.io/v1beta2, Kind=DevMachine",
	}
	if diff := cmp.Diff(want, text(validation.Kinds(&mixed.Spec, field.NewPath("spec")))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
