// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/node"
)

func status(s corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{s}}}
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off 5m0s restarting failed container"}}
}

func ended(code int32, reason string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(time.Now())}}
}

// TestTheSameTroubleHasTheSameText checks that a lasting cause does not change the condition's message.
func TestTheSameTroubleHasTheSameText(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now())}}
	unscheduled := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
	}}}}
	cases := map[string]struct {
		want string
		pods []*corev1.Pod
	}{
		"Unscheduled": {"it is not scheduled (Unschedulable)", []*corev1.Pod{unscheduled}},
		"NotStarted":  {"it has not been started", []*corev1.Pod{{}}},
		"Evicted":     {"it has not been started (Evicted)", []*corev1.Pod{{Status: corev1.PodStatus{Reason: "Evicted"}}}},
		"Crashes": {"its program last exited with code 4: the kernel does not announce processes", []*corev1.Pod{
			status(corev1.ContainerStatus{State: ended(4, "Error"), RestartCount: 1}),
			status(corev1.ContainerStatus{State: waiting("CrashLoopBackOff"), LastTerminationState: ended(4, "Error"), RestartCount: 2}),
			status(corev1.ContainerStatus{State: running, LastTerminationState: ended(4, "Error"), RestartCount: 3}),
		}},
		"OutOfMemory": {"its program last exited with code 137 (OOMKilled)", []*corev1.Pod{status(corev1.ContainerStatus{State: ended(137, "OOMKilled")})}},
		"NoImage":     {"its image cannot be pulled", []*corev1.Pod{status(corev1.ContainerStatus{State: waiting("ErrImagePull")}), status(corev1.ContainerStatus{State: waiting("ImagePullBackOff")})}},
		"BeingMade":   {"its container waits (ContainerCreating)", []*corev1.Pod{status(corev1.ContainerStatus{State: waiting("ContainerCreating")})}},
		"SaysNothing": {"it has not reported what it looks for", []*corev1.Pod{status(corev1.ContainerStatus{State: running})}},
	}
	for name, tc := range cases {
		for i, pod := range tc.pods {
			trimmed, err := node.TrimPod(pod)
			if err != nil {
				t.Fatal(err)
			}
			for what, p := range map[string]*corev1.Pod{"as it is": pod, "as it is cached": trimmed.(*corev1.Pod)} {
				if got := node.TroubleOf(p); got != tc.want {
					t.Errorf("%s %d, %s: %q, want %q", name, i, what, got, tc.want)
				}
			}
		}
	}
}

func TestAgentOn(t *testing.T) {
	now := time.Now()
	pod := func(name, node string, age time.Duration, changes ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}, Spec: corev1.PodSpec{NodeName: node}}
		for _, c := range changes {
			c(&p)
		}
		return p
	}
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(now)) }
	// unbound changes a DaemonSet's pod to one that is not scheduled yet.
	unbound := func(p *corev1.Pod) {
		node := p.Spec.NodeName
		p.Spec.NodeName = ""
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}},
		}}}
	}
	cases := map[string]struct {
		reason string
		pods   []corev1.Pod
		want   string
	}{
		"None":      {"Those of other Nodes are not asked.", []corev1.Pod{pod("a", "other", 0, ready)}, ""},
		"Ready":     {"One that works will do.", []corev1.Pod{pod("new", "desk", 0), pod("old", "desk", time.Hour, ready)}, "old"},
		"Newest":    {"It says what is wrong now.", []corev1.Pod{pod("old", "desk", time.Hour), pod("new", "desk", 0)}, "new"},
		"Leaving":   {"It listens no more.", []corev1.Pod{pod("old", "desk", time.Hour, ready, leaving), pod("new", "desk", 0)}, "new"},
		"Unbound":   {"A pod that waits for the scheduler is the Node's.", []corev1.Pod{pod("new", "desk", 0, unbound)}, "new"},
		"UnboundOf": {"And no other Node's.", []corev1.Pod{pod("new", "other", 0, unbound)}, ""},
	}
	for name, tc := range cases {
		got := ""
		if found := node.AgentOn(tc.pods, "desk"); found != nil {
			got = found.Name
		}
		if got != tc.want {
			t.Errorf("%s: %s\ngot %q, want %q", name, tc.reason, got, tc.want)
		}
		for i := range tc.pods {
			trimmed, err := node.TrimPod(&tc.pods[i])
			if err != nil || !cmp.Equal(node.PodFacts(trimmed.(*corev1.Pod)), node.PodFacts(&tc.pods[i])) {
				t.Errorf("%s: the cache loses something of %s: %v", name, tc.pods[i].Name, err)
			}
		}
	}
}
