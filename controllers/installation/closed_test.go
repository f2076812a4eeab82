// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	evictionguard "github.com/finos/cluster-api-addon-provider-5spot/config/eviction-guard"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
)

const (
	daemonSets  = "system:serviceaccount:kube-system:daemon-set-controller"
	replicaSets = "system:serviceaccount:kube-system:replicaset-controller"
)

// TestTheNamespaceIsClosed sends pods of the shipped workloads, and changed ones, to an API server with the shipped
// policy.
func TestTheNamespaceIsClosed(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.close()
	first := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	cases := map[string]struct {
		workload, user string
		change         func(*corev1.Pod)
		refused        string
	}{
		"Agent":          {"DaemonSet", daemonSets, nil, ""},
		"HoldingAgent":   {"Holding", daemonSets, nil, "read-only"},
		"PollingAgent":   {"Polling", daemonSets, nil, ""},
		"OneAccount":     {"DaemonSet", "system:kube-controller-manager", nil, ""},
		"Guard":          {"Deployment", replicaSets, nil, ""},
		"Manager":        {"Deployment", replicaSets, account("fivespot-manager"), ""},
		"Shard":          {"Deployment", replicaSets, account("fivespot-north-manager"), ""},
		"HostsNetwork":   {"Deployment", replicaSets, func(p *corev1.Pod) { p.Spec.HostNetwork = true }, ""},
		"Mirrored":       {"DaemonSet", daemonSets, func(p *corev1.Pod) { first(p).Image = "mirror/agent" }, ""},
		"ByHand":         {"DaemonSet", "", nil, "only the controllers of DaemonSets and Deployments"},
		"GuardByHand":    {"Deployment", "", nil, "only the controllers of DaemonSets and Deployments"},
		"OtherDaemonSet": {"DaemonSet", daemonSets, func(p *corev1.Pod) { p.OwnerReferences[0].Name = "evil" }, "only DaemonSet reclaim-agent"},
		"NoOwner":        {"DaemonSet", daemonSets, func(p *corev1.Pod) { p.OwnerReferences = nil }, "only DaemonSet reclaim-agent"},
		"OtherAccount":   {"DaemonSet", daemonSets, account("default"), "only 5-Spot runs in namespace 5spot-system"},
		"LooksLikeOurs":  {"Deployment", replicaSets, account("fivespot-manager-x"), "only 5-Spot runs in namespace 5spot-system"},
		"Sidecar": {"DaemonSet", daemonSets, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "x", Image: "x"})
		}, "one container"},
		"InitContainer": {"DaemonSet", daemonSets, func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "x", Image: "x"}} }, "one container"},
		"Command":       {"DaemonSet", daemonSets, func(p *corev1.Pod) { first(p).Command = []string{"sh"} }, "runs /reclaim-agent"},
		"Privileged": {"DaemonSet", daemonSets, func(p *corev1.Pod) {
			first(p).SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "without privileges"},
		"Capability":      {"DaemonSet", daemonSets, func(p *corev1.Pod) { first(p).SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }, "no capability but"},
		"AllCapabilities": {"DaemonSet", daemonSets, func(p *corev1.Pod) { first(p).SecurityContext.Capabilities.Drop = nil }, "no capability but"},
		"Writable":        {"DaemonSet", daemonSets, func(p *corev1.Pod) { first(p).VolumeMounts[0].ReadOnly = false }, "read-only"},
		"HostPath":        {"DaemonSet", daemonSets, func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/" }, "mounts nothing of its host but"},
		"HostIPC":         {"DaemonSet", daemonSets, func(p *corev1.Pod) { p.Spec.HostIPC = true }, "mounts nothing of its host but"},
		"GuardHostPath": {"Deployment", replicaSets, func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/proc"}}
		}, "mounts nothing of its host but"},
		"GuardHostPID": {"Deployment", replicaSets, func(p *corev1.Pod) { p.Spec.HostPID = true }, "only the agent sees the processes"},
		"GuardPrivileged": {"Deployment", replicaSets, func(p *corev1.Pod) {
			first(p).SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "no pod in namespace 5spot-system is privileged"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := w.podOf(tc.workload)
			if tc.change != nil {
				tc.change(pod)
			}
			w.wantRefused(w.as(tc.user).Create(t.Context(), pod, client.DryRunAll), tc.refused)
		})
	}
}

// TestTheNamespaceOfAHold sends pods to an API server with the policy of a Cluster that has a reclaimHold.
func TestTheNamespaceOfAHold(t *testing.T) {
	w := newWorld(t, "java")
	w.Edit(w.sm, func() { w.sm.Spec.ReclaimHold = reclaimapi.HoldKill })
	w.settle()
	w.close()
	first := func(p *corev1.Pod) *corev1.Container { return &p.Spec.Containers[0] }
	mount := func(p *corev1.Pod, name string) *corev1.VolumeMount {
		return &first(p).VolumeMounts[slices.IndexFunc(first(p).VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })]
	}
	for name, tc := range map[string]struct {
		workload string
		change   func(*corev1.Pod)
		refused  string
	}{
		"Agent":        {"Holding", nil, ""},
		"PollingAgent": {"HoldingPoll", nil, ""},
		"NoHold":       {"DaemonSet", nil, ""}, // before the DaemonSet is changed, and on the way back
		"Elsewhere":    {"Holding", func(p *corev1.Pod) { mount(p, "cgroup").MountPath = "/sys/fs/cgroup" }, "read-only"},
		"OtherVolume":  {"Holding", func(p *corev1.Pod) { mount(p, "cgroup").Name = "proc" }, "read-only"},
		"WritableProc": {"Holding", func(p *corev1.Pod) { mount(p, "proc").ReadOnly = false }, "read-only"},
		"Above":        {"Holding", func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/sys" }, "read-only"},
		"Capability":   {"Holding", func(p *corev1.Pod) { first(p).SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }, "no capability but"},
		"Guard": {"Deployment", func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/sys/fs/cgroup"}}
		}, "mounts nothing of its host but"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, user := w.podOf(tc.workload), daemonSets
			if tc.workload == "Deployment" {
				user = replicaSets
			}
			if tc.change != nil {
				tc.change(pod)
			}
			w.wantRefused(w.as(user).Create(t.Context(), pod, client.DryRunAll), tc.refused)
		})
	}
}

// TestAPodOfTheNamespaceStays changes a running pod.
func TestAPodOfTheNamespaceStays(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.close()
	pod := w.podOf("DaemonSet")
	w.Must(w.as(daemonSets).Create(t.Context(), pod))
	t.Cleanup(func() {
		w.Must(w.Client.Delete(context.WithoutCancel(t.Context()), pod.DeepCopy(), client.GracePeriodSeconds(0)))
	})
	labelled, image := pod.DeepCopy(), pod.DeepCopy()
	labelled.Labels["a"] = "b"
	w.wantRefused(w.Client.Patch(t.Context(), labelled, client.MergeFrom(pod)), "")
	image.Spec.Containers[0].Image = "evil"
	w.wantRefused(w.Client.Patch(t.Context(), image, client.MergeFrom(pod)), "keeps its images")
	w.Read(pod)
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "sh"}}}
	w.wantRefused(w.Client.SubResource("ephemeralcontainers").Update(t.Context(), pod), "gets no more containers")
}

func account(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.ServiceAccountName = name }
}

// as returns a client of another user; an empty user is the administrator.
func (w *world) as(user string) client.Client {
	w.Helper()
	config := rest.CopyConfig(w.Config)
	if user != "" { // In its own cluster, the user has all permissions.
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	c, err := client.New(config, client.Options{Scheme: w.Client.Scheme()})
	w.Must(err)
	return c
}

// podOf returns a pod of a workload, like its controller creates it.
func (w *world) podOf(workload string) *corev1.Pod {
	w.Helper()
	objects, err := manifests.Objects()
	w.Must(err)
	kind, owner := "DaemonSet", "DaemonSet"
	switch workload {
	case "Polling":
		objects, err = manifests.Polling(objects)
	case "Holding":
		objects, err = manifests.Holding(objects)
	case "HoldingPoll":
		objects, err = manifests.Polling(objects)
		w.Must(err)
		objects, err = manifests.Holding(objects)
	case "Deployment":
		kind, owner = "Deployment", "ReplicaSet"
		objects, err = evictionguard.Objects()
	}
	w.Must(err)
	u := objects[slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })]
	d := &appsv1.DaemonSet{} // A Deployment has the same template.
	w.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d))
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.GenerateName = reclaimapi.Namespace, u.GetName()+"-"
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: u.GetName(), UID: "1", Controller: new(true)}}
	return pod
}

// wantRefused checks that err has the message; an empty message means no error.
func (w *world) wantRefused(err error, message string) {
	w.Helper()
	if message == "" {
		w.Must(err)
		return
	}
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "fivespot-agent-namespace") || !strings.Contains(err.Error(), message) {
		w.Errorf("got %v, want %q", err, message)
	}
}

// close sets the labels of the Namespace, which other tests omit, and waits until the policy is in force.
func (w *world) close() {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reclaimapi.Namespace}}
	w.Must(w.Client.Get(w.Context(), client.ObjectKeyFromObject(ns), ns))
	open := ns.DeepCopy()
	maps.Copy(ns.Labels, w.manifests[0].GetLabels())
	w.Must(w.Client.Patch(w.Context(), ns, client.MergeFrom(open)))
	open.ResourceVersion = ns.ResourceVersion
	w.Cleanup(func() { w.Must(w.Client.Patch(context.WithoutCancel(w.Context()), open, client.MergeFrom(ns))) })
	for range 300 { // A policy is in force a moment after it is written.
		refused := w.Client.Create(w.Context(), w.podOf("DaemonSet"), client.DryRunAll) != nil
		holds := w.as(daemonSets).Create(w.Context(), w.podOf("Holding"), client.DryRunAll) == nil
		if refused && holds == w.sm.Spec.ReclaimHold.Enabled() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.Fatal("the policy is not in force")
}
