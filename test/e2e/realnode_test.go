// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// Real nodes have two images: the released agent, and one whose only program has the name of the owner's program. No
// other process may have that name on its command line.
const (
	agentImage    = "plane.local/reclaim-agent:e2e"
	workloadImage = "plane.local/workload:1"
	ownersProgram = "e2e-owned"
)

// TestRealNodeIsGivenBack is a whole reclaim on a kubelet: the manager installs the agent, which runs with the released
// permissions and distinguishes the owner's program from a workload. It runs once for each version of control groups,
// because the agent reads them.
func TestRealNodeIsGivenBack(t *testing.T) {
	t.Parallel()
	l, program := newRealLab(t, "real")
	person := l.owner("real-owner")
	var sm *v1alpha1.ScheduledMachine
	lent := 0
	shared.EachCgroupVersion(t, func(t *testing.T, version infrav1.CgroupVersion) {
		t.Helper()
		l := l.in(t)
		infra := infrav1.PlaneMachineSpec{Backend: infrav1.Real, Cgroups: version}
		if sm == nil {
			sm = l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{ownersProgram} }, infra)
		} else {
			changed := l.scheduledMachine("box", infra)
			l.edit(sm, func() { sm.Spec.InfrastructureSpec = changed.Spec.InfrastructureSpec })
			l.resume(sm, person)
		}
		lent++
		l.wantGivenBack(sm, program, lent)
	})
	if sm != nil {
		l.resume(sm, person)
		l.waitAgent(sm).wantDetector(t, kernelDetector(t))
	}
}

// in returns the lab for a subtest.
func (l *lab) in(t *testing.T) *lab {
	t.Helper()
	return &lab{Workload: l.Workload, t: t}
}

// resume resumes a reclaimed machine, as a person.
func (l *lab) resume(sm *v1alpha1.ScheduledMachine, person owner) {
	l.t.Helper()
	wantInOrder(l.t, owner{l, person.kubeconfig}.run("resume", sm.Name), "on again", "the machine joins now")
	l.waitPhase(sm, active, metav1.ConditionTrue)
}

// wantGivenBack starts the owner's program on a lent machine, for the nth time.
func (l *lab) wantGivenBack(sm *v1alpha1.ScheduledMachine, program string, nth int) {
	t := l.t
	t.Helper()
	box, err := shared.RealNode(client.ObjectKeyFromObject(familyOf(sm).infra))
	l.must(err)
	objects, err := manifests.Objects()
	l.must(err)
	agent := l.waitAgent(sm)
	agent.want(t, agentRights{objects: objects, user: 0, capabilities: 1 << netAdmin, hostNetwork: true})
	agent.wantDetector(t, kernelDetector(t))
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", l.node(sm).Name, "detector "+kernelDetector(t))

	l.wantIgnored(sm, agent)
	processes, err := box.Processes()
	l.must(err)
	wantNamed(t, processes, "containerd", "kubelet", "containerd-shim", "reclaim-agent", ownersProgram)

	begin := time.Now()
	owner := l.startCommand("sh", "-c", "exec "+program)
	l.wantReclaimed(sm, ownersProgram)
	t.Logf("from the start of the owner's program to the end of the reclaim: %v", time.Since(begin).Round(time.Millisecond))
	l.wantAsked(sm, nth)
	for _, p := range processes {
		if p.Alive() {
			t.Errorf("process %d of the node, %s, must have ended", p.PID, p.Name)
		}
	}
	if left, err := box.Traces(); err != nil || len(left) > 0 {
		t.Errorf("the machine must be as it was before it was lent: %v, %v", left, err)
	}
	l.wantUntouched(owner)
	l.must(owner.Process.Kill())
}

// TestRealNodeIsGivenBackByAnAgentThatOnlyPolls has an agent without a capability. It needs another argument of the
// shared manager, so it is not parallel.
func TestRealNodeIsGivenBackByAnAgentThatOnlyPolls(t *testing.T) {
	long(t)
	l, program := newRealLab(t, "realpoll")
	l.restartManager("--reclaim-agent-detector=poll")
	defer l.restartManager("--reclaim-agent-detector=auto")
	sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{ownersProgram} },
		infrav1.PlaneMachineSpec{Backend: infrav1.Real})
	objects, err := manifests.Objects()
	l.must(err)
	objects, err = manifests.Polling(objects)
	l.must(err)
	agent := l.waitAgent(sm)
	agent.want(t, agentRights{objects: objects, user: 65532})
	agent.wantDetector(t, "poll")
	l.waitCondition(sm, v1alpha1.OwnerProtectedCondition, metav1.ConditionTrue, "Watching", "detector poll")
	l.wantIgnored(sm, agent)

	owner := l.startCommand("sh", "-c", "exec "+program)
	l.wantReclaimed(sm, ownersProgram)
	l.wantAsked(sm, 1)
	l.wantUntouched(owner)
}

// restartManager restarts the manager with more arguments.
func (l *lab) restartManager(args ...string) {
	l.t.Helper()
	l.must(shared.Manager.Stop())
	shared.Manager.AddArgs(args...)
	l.must(shared.Manager.Start(timeout(l.t, patience)))
}

// newRealLab creates a Cluster whose Nodes can be kubelets on this machine, and also returns the owner's program.
func newRealLab(t *testing.T, name string) (*lab, string) {
	t.Helper()
	return newRealLabWith(t, name, ownersProgram, workloadImage)
}

// newRealLabWith has an owner's program of another name, and an image of it. Tests that run at the same time on this
// machine need different ones, because each agent sees all processes.
func newRealLabWith(t *testing.T, name, programName, ref string) (*lab, string) {
	t.Helper()
	if err := shared.RealNodes(); err != nil {
		t.Skip(err)
	}
	l := newNamespace(t, name)
	l.newWorkload(plane.WorkloadOptions{RealNodes: true})
	program := filepath.Join(t.TempDir(), programName)
	l.must(copyProgram(shared.Bin("pause"), program))
	ctx := timeout(t, patience)
	l.must(shared.ImportImage(ctx, agentImage, shared.Program("reclaim-agent")))
	l.must(shared.ImportImage(ctx, ref, program))
	return l, program
}

// An installedAgent is the agent's pod on a Node, and its process on this machine.
type installedAgent struct {
	pod *corev1.Pod
	realnode.Process
}

// waitAgent waits until the agent that the manager installed is Ready and armed.
func (l *lab) waitAgent(sm *v1alpha1.ScheduledMachine) installedAgent {
	l.t.Helper()
	node := l.node(sm).Name
	l.waitConfig(l.Cluster, node, sm.Spec.AgentConfig())
	var agent installedAgent
	l.until(func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := l.Client.List(ctx, pods, client.InNamespace(reclaim.Namespace)); err != nil {
			return err
		}
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node && p.DeletionTimestamp.IsZero() })
		if i < 0 {
			return errors.New("the DaemonSet has no pod for the Node")
		}
		agent.pod = &pods.Items[i]
		if !slices.ContainsFunc(agent.pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("the agent is not Ready: %+v", agent.pod.Status.ContainerStatuses)
		}
		return nil
	})
	box, err := shared.RealNode(client.ObjectKeyFromObject(familyOf(sm).infra))
	l.must(err)
	agent.Process, err = box.InContainer(agent.pod.Status.ContainerStatuses[0].ContainerID)
	l.must(err)
	return agent
}

// netAdmin is the number of CAP_NET_ADMIN.
const netAdmin = 12

// agentRights are exactly the permissions that an agent may have.
type agentRights struct {
	// objects are the installed objects.
	objects     []*unstructured.Unstructured
	user        int
	hostNetwork bool
	// capabilities is a bit mask.
	capabilities uint64
}

// want checks an agent's pod against the manifests, and its process against /proc.
func (a installedAgent) want(t *testing.T, r agentRights) {
	t.Helper()
	i := slices.IndexFunc(r.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "DaemonSet" })
	ds := &appsv1.DaemonSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.objects[i].Object, ds); err != nil {
		t.Fatal(err)
	}
	shipped := ds.Spec.Template.Spec
	shipped.Containers[0].Image = agentImage
	if diff := cmp.Diff(partsOf(shipped), partsOf(a.pod.Spec)); diff != "" {
		t.Errorf("the agent's pod: -as shipped, +as it runs:\n%s", diff)
	}
	a.wantStatus(t, r)
	a.wantMounts(t)
	a.wantNamespace(t, "pid", true)
	a.wantNamespace(t, "net", r.hostNetwork)
}

// podParts are the parts of a pod spec that give access to its host.
type podParts struct {
	Account                       string
	HostPID, HostNetwork, HostIPC bool
	Pod                           *corev1.PodSecurityContext
	Volumes                       []corev1.Volume
	Containers                    []containerParts
}

type containerParts struct {
	Image         string
	Command, Args []string
	Security      *corev1.SecurityContext
	Mounts        []corev1.VolumeMount
}

// partsOf omits the token, which every pod gets.
func partsOf(s corev1.PodSpec) podParts {
	const token = "kube-api-access-"
	parts := podParts{
		Account: s.ServiceAccountName, HostPID: s.HostPID, HostNetwork: s.HostNetwork, HostIPC: s.HostIPC, Pod: s.SecurityContext,
		Volumes: slices.DeleteFunc(slices.Clone(s.Volumes), func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, token) }),
	}
	for _, c := range append(slices.Clone(s.InitContainers), s.Containers...) {
		parts.Containers = append(parts.Containers, containerParts{
			Image: c.Image, Command: c.Command, Args: c.Args, Security: c.SecurityContext,
			Mounts: slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, token) }),
		})
	}
	return parts
}

// wantStatus checks the credentials of an agent's process.
func (a installedAgent) wantStatus(t *testing.T, r agentRights) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID))
	if err != nil {
		t.Fatal(err)
	}
	has, none := fmt.Sprintf("%016x", r.capabilities), fmt.Sprintf("%016x", 0)
	want := map[string]string{
		"Name": "reclaim-agent", "NoNewPrivs": "1", "Seccomp": "2", // a filter
		"Uid": fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", r.user), "Gid": "0\t0\t0\t0",
		"CapEff": has, "CapPrm": has, "CapBnd": has, "CapInh": none, "CapAmb": none,
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if _, ok := want[key]; ok {
			got[key] = strings.TrimSpace(value)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent's process: -want, +got:\n%s", diff)
	}
}

// wantMounts checks that an agent can read the required parts of its host, and that it can write neither these nor its
// own image.
func (a installedAgent) wantMounts(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", a.PID))
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 {
			options[fields[4]] = fields[5]
		}
	}
	for _, path := range []string{"/", "/host/proc", "/host/etc/machine-id"} {
		if !slices.Contains(strings.Split(options[path], ","), "ro") {
			t.Errorf("%s must be mounted, to be read only: %q", path, options[path])
		}
	}
}

// wantNamespace checks whether the agent is in a namespace of its host.
func (a installedAgent) wantNamespace(t *testing.T, kind string, want bool) {
	t.Helper()
	host, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", a.PID, kind))
	if err != nil || (own == host) != want {
		t.Errorf("the agent's %s namespace is %s, that of the host %s: %v", kind, own, host, err)
	}
}

// kernelDetector is the expected detector on this kernel.
func kernelDetector(t *testing.T) string {
	t.Helper()
	conn, err := procevents.Dial(procevents.Options{Now: time.Now})
	if err != nil {
		t.Logf("the agent polls, because the kernel does not announce processes to this test either: %v", err)
		return "poll"
	}
	_ = conn.Close()
	return "netlink"
}

// wantDetector waits until the agent uses this detector.
func (a installedAgent) wantDetector(t *testing.T, detector string) {
	t.Helper()
	a.wantMetric(t, fmt.Sprintf("fivespot_agent_detector{detector=%q} 1", detector))
}

// wantMetric waits for a line of the agent's metrics.
func (a installedAgent) wantMetric(t *testing.T, want string) {
	t.Helper()
	err := plane.Until(timeout(t, patience), func(ctx context.Context) error {
		metrics, err := a.metrics(ctx)
		if err == nil && !strings.Contains(metrics, want+"\n") {
			err = fmt.Errorf("no metric %s among\n%s", want, metrics)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (a installedAgent) metrics(ctx context.Context) (string, error) {
	host := a.pod.Status.PodIP
	if a.pod.Spec.HostNetwork {
		host = "127.0.0.1"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":9797/metrics", nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// wantIgnored runs a workload with the name of the owner's program, and another with volumes of that name. It checks
// that the agent detects both and makes no request.
func (l *lab) wantIgnored(sm *v1alpha1.ScheduledMachine, agent installedAgent) {
	l.t.Helper()
	l.runImage(sm, fmt.Sprintf("workload-%d", agent.PID), workloadImage)
	volumes := l.runImage(sm, fmt.Sprintf("volumes-%d", agent.PID), workloadImage, withVolumes)
	l.must(l.Client.Delete(timeout(l.t, patience), volumes))
	l.must(l.WaitGone(timeout(l.t, patience), volumes))
	seen := func(ctx context.Context) error {
		metrics, err := agent.metrics(ctx)
		if err == nil && strings.Contains(metrics, "fivespot_agent_excluded_total 0\n") {
			err = errors.New("the agent has not seen the workload's process")
		}
		return err
	}
	l.until(seen)
	holds(l.t, 2*shortly, func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := l.Client.Get(ctx, client.ObjectKey{Name: sm.Status.NodeRef.Name}, node); err != nil {
			return err
		}
		for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
			if v, ok := node.Annotations[key]; ok {
				return fmt.Errorf("a workload's process takes its own Node away: %s=%s", key, v)
			}
		}
		return seen(ctx)
	})
	agent.wantMetric(l.t, "fivespot_agent_matches_total 0")
}

// withVolumes gives a pod volumes with the name of the owner's program. The kubelet runs mount for each, outside of any
// pod, with that name on its command line.
func withVolumes(pod *corev1.Pod) {
	for i := range 10 {
		v := corev1.Volume{Name: fmt.Sprintf("%s-%d", ownersProgram, i)}
		v.Secret = &corev1.SecretVolumeSource{SecretName: "none", Optional: new(true)}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v)
		mount := corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name}
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, mount)
	}
}

// wantNamed checks that there is a process of each name.
func wantNamed(t *testing.T, processes []realnode.Process, names ...string) {
	t.Helper()
	for _, name := range names {
		if !slices.ContainsFunc(processes, func(p realnode.Process) bool { return p.Name == name }) {
			t.Errorf("no process is called %s: %+v", name, processes)
		}
	}
}

// wantAsked checks that the agent's requests were within its permissions. For each of the times, one of them must
// request the machine, and an earlier one must report its configuration.
func (l *lab) wantAsked(sm *v1alpha1.ScheduledMachine, times int) {
	l.t.Helper()
	asked, said := 0, 0
	for _, e := range l.audit(l.Cluster) {
		if e.User.Username != "system:serviceaccount:"+reclaim.Namespace+":reclaim-agent" || e.ResponseStatus == nil {
			continue
		}
		if e.ResponseStatus.Code >= 400 {
			l.t.Errorf("the agent was refused: %s", describe(e))
		}
		switch text := body(e); {
		case !isWrite(e):
		case strings.Contains(text, reclaim.Reason(ownersProgram)) && asked < said:
			asked++
		case strings.Contains(text, reclaim.StateAnnotation) && said == asked:
			said++
		default:
			l.t.Errorf("the agent may write nothing but its request, and before it what it looks for: %s", describe(e))
		}
	}
	if asked != times || said != times {
		l.t.Errorf("the agent has to ask %d times for %s, and to say as often what it looks for, not %d and %d times", times, sm.Name, asked, said)
	}
}
