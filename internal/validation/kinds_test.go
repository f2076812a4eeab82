// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/restmapper"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/validation"
)

// Kinds of providers, as their CRDs are called.
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
	// noBootstrapKinds and noInfrastructureKinds are kinds in the same groups, and
	// other names, to which no Machine may refer.
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

// TestKindsThatAMachineMayReferTo is the rule of ADR 0023, inline and by template.
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

// served is a RESTMapper as a manager has it, of an API server with these kinds.
func served() meta.RESTMapper {
	return restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{{
		Group: metav1.APIGroup{Name: infrastructureGroup, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: infrastructureGroup + "/v1", Version: "v1"}}},
		VersionedResources: map[string][]metav1.APIResource{"v1": {
			{Name: "devmachines", SingularName: "devmachine", Kind: "DevMachine", Namespaced: true},
			{Name: "oddhosts", SingularName: "oddhost", Kind: "OddHost", Namespaced: true},
			{Name: "fakeclusteridentities", SingularName: "fakeclusteridentity", Kind: "FakeClusterIdentity"},
			{Name: "globalmachines", SingularName: "globalmachine", Kind: "GlobalMachine"},
		}},
	}})
}

const infrastructureGroup = "infrastructure.cluster.x-k8s.io"

// TestKindIsWhatIsServed asks a mapper for what F1 and F2 of an attack asked for.
func TestKindIsWhatIsServed(t *testing.T) {
	for kind, tc := range map[string]struct{ reason, want string }{
		"DevMachine":          {"It is an ordinary kind.", ""},
		"OddHost":             {"What was made before there was a rule about names can be found.", ""},
		"devmachine":          {"No informer of it is ever filled.", "is not the kind of an object"},
		"DevMachineList":      {"The same.", "is not the kind of an object"},
		"List":                {"The same.", "is not the kind of an object"},
		"FakeClusterIdentity": {"It belongs to whoever runs the management cluster.", "is not namespaced"},
		"GlobalMachine":       {"Whatever it is called.", "is not namespaced"},
	} {
		asked := schema.GroupVersionKind{Group: infrastructureGroup, Version: "v1", Kind: kind}
		mapping, err := served().RESTMapping(asked.GroupKind(), asked.Version)
		if err != nil {
			t.Fatalf("%s: not even resolved: %v", kind, err)
		}
		err = validation.Kind(mapping, asked)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s\ngot %v, want %q", kind, tc.reason, err, tc.want)
		}
	}
	other := &meta.RESTMapping{GroupVersionKind: schema.GroupVersionKind{Group: infrastructureGroup, Version: "v1", Kind: "DevMachine"}, Scope: meta.RESTScopeNamespace}
	if err := validation.Kind(other, schema.GroupVersionKind{Group: infrastructureGroup, Kind: "Devmachine"}); err == nil {
		t.Error("a mapping of another kind is taken")
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
