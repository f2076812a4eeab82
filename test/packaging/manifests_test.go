// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// listening and polling are the directories of config that install the agent.
const (
	listening = "reclaim-agent"
	polling   = "reclaim-agent-poll"
)

// agentManifests are kustomize's objects of a directory of config.
func agentManifests(t *testing.T, directory string) []*unstructured.Unstructured {
	t.Helper()
	text, err := kustomize(directory)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

func agentDaemonSet(t *testing.T, directory string) *appsv1.DaemonSet {
	t.Helper()
	ds := &appsv1.DaemonSet{}
	for _, u := range agentManifests(t, directory) {
		if u.GetKind() != "DaemonSet" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, ds, true); err != nil {
			t.Fatal(err)
		}
	}
	return ds
}

// byName returns objects by their identity.
func byName(objects []*unstructured.Unstructured) map[string]any {
	found := map[string]any{}
	for _, u := range objects {
		found[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u.Object
	}
	return found
}

// TestTheAgentIsTheSameWhoeverInstallsIt compares the manager's objects and the templates' with kustomize's.
func TestTheAgentIsTheSameWhoeverInstallsIt(t *testing.T) {
	embedded, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	patched, err := manifests.Polling(embedded)
	if err != nil {
		t.Fatal(err)
	}
	for directory, installed := range map[string][]*unstructured.Unstructured{listening: embedded, polling: patched} {
		t.Run(directory, func(t *testing.T) {
			want := byName(agentManifests(t, directory))
			if len(want) == 0 {
				t.Fatal("nothing is installed")
			}
			if diff := cmp.Diff(want, normal(t, installed)); diff != "" {
				t.Errorf("-as kustomize builds it, +as the manager installs it:\n%s", diff)
			}
			applied := template(t, "clusterresourceset-"+directory+".yaml")
			if diff := cmp.Diff(want, byName(applied)); diff != "" {
				t.Errorf("-as kustomize builds it, +as the template has it; run make generate:\n%s", diff)
			}
			for i, u := range installed {
				if u.GetKind() != applied[i].GetKind() {
					t.Errorf("object %d is a %s in the template, and a %s as the manager installs it", i, applied[i].GetKind(), u.GetKind())
				}
			}
		})
	}
}

// TestTheHoldIsTheSameWhoeverInstallsIt compares the manager's objects with the template's, and with kustomize's, which
// adds volumes in another order.
func TestTheHoldIsTheSameWhoeverInstallsIt(t *testing.T) {
	embedded, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	holding, err := manifests.Holding(embedded)
	if err != nil {
		t.Fatal(err)
	}
	sorted := func(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
		pod := &ds.Spec.Template.Spec
		slices.SortFunc(pod.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(pod.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
		return ds
	}
	built, installed := byName(agentManifests(t, "reclaim-agent-hold")), normal(t, holding)
	if diff := cmp.Diff(byName(template(t, "clusterresourceset-reclaim-agent-hold.yaml")), installed); diff != "" {
		t.Errorf("-as the template has it, +as the manager installs it; run make generate:\n%s", diff)
	}
	const name = "DaemonSet 5spot-system/reclaim-agent"
	ds := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(installed[name].(map[string]any), ds); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sorted(agentDaemonSet(t, "reclaim-agent-hold")), sorted(ds)); diff != "" {
		t.Errorf("-as kustomize builds it, +as the manager installs it:\n%s", diff)
	}
	delete(built, name)
	delete(installed, name)
	if diff := cmp.Diff(built, installed); diff != "" {
		t.Errorf("-as kustomize builds it, +as the manager installs it:\n%s", diff)
	}
}

// template returns what a ClusterResourceSet applies, in its order.
func template(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(system.Repository(), "templates", file))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "${") {
		t.Error("clusterctl would fill in a variable")
	}
	var applied []*unstructured.Unstructured
	for _, u := range decode(t, text) {
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		for _, key := range slices.Sorted(maps.Keys(data)) {
			applied = append(applied, decode(t, []byte(data[key]))...)
		}
	}
	return applied
}

// normal converts numbers to the types of the YAML reader.
func normal(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, u := range objects {
		text, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, decode(t, text)...)
	}
	return byName(found)
}

func TestAgentAsksForNothingItDoesNotNeed(t *testing.T) {
	t.Run(listening, func(t *testing.T) {
		pod := agentDaemonSet(t, listening).Spec.Template.Spec
		asksForLittle(t, pod, "NET_ADMIN")
		if !pod.HostNetwork || *pod.Containers[0].SecurityContext.RunAsUser != 0 {
			t.Errorf("the kernel announces processes to nobody else: %v", pod)
		}
	})
	t.Run(polling, func(t *testing.T) {
		pod := agentDaemonSet(t, polling).Spec.Template.Spec
		asksForLittle(t, pod)
		if s := pod.Containers[0].SecurityContext; pod.HostNetwork || *s.RunAsUser == 0 || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
			t.Errorf("looking at processes takes neither the host's network nor user 0: %v", pod)
		}
		for _, p := range pod.Containers[0].Ports {
			if p.HostPort != 0 {
				t.Errorf("port %s is one of the host", p.Name)
			}
		}
	})
}

// asksForLittle checks the common restrictions of both agents, and the capabilities.
func asksForLittle(t *testing.T, pod corev1.PodSpec, capabilities ...corev1.Capability) {
	t.Helper()
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("containers %v %v", pod.Containers, pod.InitContainers)
	}
	c := pod.Containers[0]
	s := c.SecurityContext
	if s.Privileged == nil || *s.Privileged || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		t.Errorf("security context %v", s)
	}
	if diff := cmp.Diff(&corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities}, s.Capabilities); diff != "" {
		t.Errorf("capabilities: -want, +got:\n%s", diff)
	}
	if pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp %v", pod.SecurityContext)
	}
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			t.Fatalf("volume %s is not on the host", v.Name)
		}
		paths[v.HostPath.Path] = string(*v.HostPath.Type)
	}
	if diff := cmp.Diff(map[string]string{"/proc": "Directory", "/etc/machine-id": "File"}, paths); diff != "" {
		t.Errorf("of the host: -want, +got:\n%s", diff)
	}
	for _, m := range c.VolumeMounts {
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.Name)
		}
	}
	if !pod.HostPID || pod.HostIPC || pod.PriorityClassName != "system-node-critical" || *pod.TerminationGracePeriodSeconds != 5 {
		t.Errorf("pod %v", pod)
	}
	if c.LivenessProbe != nil {
		t.Errorf("an agent whose port is taken must not be ended: %v", c.LivenessProbe)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations); diff != "" {
		t.Errorf("an owner counts on every Node: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"5spot.finos.org/reclaim-agent": "enabled"}, pod.NodeSelector); diff != "" {
		t.Errorf("Nodes: -want, +got:\n%s", diff)
	}
}

func TestFlagsOfTheAgentExist(t *testing.T) {
	known, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "reference", "flags.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, directory := range []string{listening, polling} {
		for _, arg := range agentDaemonSet(t, directory).Spec.Template.Spec.Containers[0].Args {
			if name, _, _ := strings.Cut(arg, "="); !strings.Contains(string(known), "`"+name+"`") {
				t.Errorf("the agent has no flag %s", name)
			}
		}
	}
}
