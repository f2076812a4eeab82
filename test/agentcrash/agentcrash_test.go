// SPDX-License-Identifier: Apache-2.0

package agentcrash

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	machineID = "0123456789abcdef0123456789abcdef"
	command   = "java"
	patience  = 30 * time.Second
	// quiet is how long the test watches for a wrong write of the agent. It exceeds the agent's retry interval, and its
	// poll interval many times.
	quiet = 500 * time.Millisecond
)

// The agent's last log lines in a stable state.
const (
	watching = `msg="Watching processes"`
	waiting  = `msg="Waiting until the request is cleared"`
)

// A setting is the initial state for the agent.
type setting struct {
	reason      string
	annotations map[string]string
	noJSONPatch bool
	// writes are the writes of a run without a fault.
	writes []string
}

var settings = map[string]setting{
	"Annotated": {
		reason:      "Nodes have annotations: check and write are one request.",
		annotations: map[string]string{"example.org/kept": "x"},
		writes:      []string{string(types.JSONPatchType)},
	},
	"Bare": {
		reason: "A Node without any annotations refuses the first.",
		writes: []string{string(types.JSONPatchType), string(types.JSONPatchType)},
	},
	"NoJSONPatch": {
		reason:      "So does a server that has no JSON Patch.",
		annotations: map[string]string{"example.org/kept": "x"},
		noJSONPatch: true,
		writes:      []string{string(types.JSONPatchType), string(types.MergePatchType)},
	},
}

// TestCrashPoints breaks each write of the agent in each way. Every run must end as the run without a fault: with one
// request on the Node, and no other change.
func TestCrashPoints(t *testing.T) {
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			calm := newDesk(t, s)
			calm.runs()
			calm.start()
			calm.wantRequest()
			writes, _ := calm.proxy.seen()
			if diff := cmp.Diff(s.writes, writes); diff != "" {
				t.Fatalf("%s\n-want, +sent:\n%s", s.reason, diff)
			}
			for n := range writes {
				for _, f := range []fault{before, after, lost} {
					t.Run(fmt.Sprintf("%d-%s", n, f), func(t *testing.T) {
						d := newDesk(t, s)
						d.breakAt(n, f)
						d.runs()
						d.start()
						d.await(d.proxy.struck)
						if f != lost {
							d.start()
						}
						d.wantRequest()
						if sent, _ := d.proxy.seen(); f == after && n == len(writes)-1 && len(sent) != len(writes) {
							t.Errorf("the agent that started anew has written a request that stood: %v", sent)
						}
					})
				}
			}
		})
	}
}

// TestServedBeforeTheAgentHears loses a reply for so long that the controller has served the request and removed it
// from the Node. The agent sends it again, and the controller must recognize it as the served request.
func TestServedBeforeTheAgentHears(t *testing.T) {
	for name, s := range settings {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, s)
			d.breakAt(len(s.writes)-1, lost)
			d.proxy.served = func() {
				time.Sleep(time.Second) // a second request would have another time
				d.clear()
			}
			d.runs()
			d.start()
			d.await(d.proxy.struck)
			d.says(waiting)
			_, requests := d.proxy.seen()
			if len(requests) != 2 {
				t.Fatalf("%d writes have changed the Node, want the one that was lost and the one after", len(requests))
			}
			if diff := cmp.Diff(requests[0], requests[1]); diff != "" {
				t.Errorf("The controller would serve it twice: -first, +again:\n%s", diff)
			}
		})
	}
}

// TestProcessEndsBeforeTheAgentIsBack ends the agent before its write, and the process, too. The machine is not needed
// any more, so there must be no request.
func TestProcessEndsBeforeTheAgentIsBack(t *testing.T) {
	d := newDesk(t, settings["Annotated"])
	d.breakAt(0, before)
	end := d.runs()
	d.start()
	d.await(d.proxy.struck)
	end()
	d.start()
	d.says(watching, watching)
	time.Sleep(quiet)
	if writes, _ := d.proxy.seen(); len(writes) != 1 || reclaim.Requested(d.read().Annotations) {
		t.Errorf("%d writes, want only the one that was broken", len(writes))
	}
}

// TestCrashPointsOfTelling breaks the write of the agent's state to the Node. Every run must end as the run without a
// fault, and without a request.
func TestCrashPointsOfTelling(t *testing.T) {
	for _, f := range []fault{"", before, after, lost} {
		t.Run("0-"+string(f), func(t *testing.T) {
			d := newDesk(t, settings["Bare"])
			d.proxy.breaks = telling
			d.breakAt(0, f)
			d.start()
			d.says(watching)
			if f != "" {
				d.await(d.proxy.struck)
			}
			if f == before || f == after {
				d.start()
				d.says(watching, watching)
			}
			d.must(plane.Until(d.patient(), func(ctx context.Context) error {
				node := &corev1.Node{}
				err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(d.node), node)
				if err == nil && node.Annotations[reclaim.StateAnnotation] == "" {
					return errors.New("the Node has not been told")
				}
				return err
			}))
			time.Sleep(quiet)
			want, got := 1, d.proxy.stateWrites()
			if f == before {
				want = 2 // the first write never arrived
			}
			if got != want {
				t.Errorf("the agent wrote %d times, want %d", got, want)
			}
			node := d.read()
			d.wantState(node.Annotations[reclaim.StateAnnotation])
			if len(node.Annotations) != 1 {
				t.Errorf("annotations %v, want no others", node.Annotations)
			}
		})
	}
}

// TestServerAway stops the API server before the match.
func TestServerAway(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// meanwhile runs while the server is down and the agent has a match.
		meanwhile func(d *desk, end func())
		// since reports that the request must have the time of the match.
		since bool
	}{
		"Kept":           {"The match waits for the server.", func(*desk, func()) {}, true},
		"ProcessEnds":    {"Also if the process ends: its owner was there.", func(_ *desk, end func()) { end() }, true},
		"AgentRestarted": {"An agent that starts anew finds the process again.", func(d *desk, _ func()) { d.kill(); d.start() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, settings["Annotated"])
			d.start()
			d.says(watching)
			d.proxy.setDown(true)
			end := d.runs()
			d.says(watching, `msg="Reporting to Node"`)
			matched := time.Now()
			tc.meanwhile(d, end)
			time.Sleep(2 * time.Second)
			d.proxy.setDown(false)
			d.wantRequest()
			if at := d.requestedAt(); tc.since && at.After(matched) {
				t.Errorf("%s\nrequested at %v, want the time of the match, %v", tc.reason, at, matched)
			}
		})
	}
}

// A desk is a machine: a Node, an agent, and the processes that the agent sees.
type desk struct {
	*testing.T
	begun time.Time
	node  *corev1.Node
	proxy *proxy
	agent *plane.Process
	proc  string
}

func newDesk(t *testing.T, s setting) *desk {
	t.Helper()
	d := &desk{T: t, begun: time.Now().Truncate(time.Second), proxy: newProxy(t), proc: filepath.Join(t.TempDir(), "proc")}
	d.proxy.noJSONPatch, d.proxy.kill = s.noJSONPatch, d.kill
	d.install()
	ctx, c := d.patient(), shared.Management.Client
	d.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "desk-", Labels: map[string]string{"team": "lab"}, Annotations: s.annotations}}
	d.must(c.Create(ctx, d.node))
	d.node.Status.NodeInfo.MachineID = machineID
	d.must(c.Status().Update(ctx, d.node))
	d.must(c.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(d.node.Name)},
		Data:       map[string]string{reclaim.ConfigMapKey: reclaim.ConfigFor([]string{command}).Text()},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: d.node.Name},
		Spec: corev1.PodSpec{
			NodeName: d.node.Name, ServiceAccountName: "reclaim-agent", AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	d.must(c.Create(ctx, pod))
	user, err := shared.Management.PodUser(ctx, pod)
	d.must(err)
	dir := t.TempDir()
	kubeconfig, id := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "machine-id")
	d.proxy.kubeconfig(t, user.Kubeconfig, kubeconfig)
	d.must(os.WriteFile(id, []byte(machineID+"\n"), 0o600))
	// The agent checks by process 1 that no processes are hidden.
	d.describe(filepath.Join(d.proc, "1"), 1, 0, "init")
	d.agent = shared.NewProcess("agent-"+d.node.Name, filepath.Join(system.DefaultBin(), "reclaim-agent"), []string{
		"--node-name=" + d.node.Name, "--kubeconfig=" + kubeconfig, "--machine-id-path=" + id,
		"--proc-root=" + d.proc, "--detector=poll",
	}, nil, nil)
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("log of the agent:\n%s", d.agent.LogTail(40))
		}
	})
	return d
}

// patient is a context for one wait of the test.
func (d *desk) patient() context.Context {
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	d.Cleanup(cancel)
	return ctx
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// install gives the agent exactly the released permissions.
func (d *desk) install() {
	d.Helper()
	d.must(shared.Management.EnsureNamespace(d.Context(), reclaim.Namespace))
	for _, file := range []string{"policy.yaml", "rbac.yaml"} {
		_, err := shared.Management.Kubectl(d.Context(), "apply", "-f", filepath.Join(system.Repository(), "config", "reclaim-agent", file))
		d.must(err)
	}
}

// start runs the agent, as the kubelet would after it ended.
func (d *desk) start() { d.Helper(); d.must(d.agent.Start(d.patient())) }

// kill ends the agent with SIGKILL.
func (d *desk) kill() {
	if err := d.agent.Kill(); err != nil {
		d.Error(err)
	}
}

func (d *desk) breakAt(n int, f fault) {
	d.proxy.at = func(i int) fault {
		if i == n {
			return f
		}
		return ""
	}
}

// runs starts a matching process; end ends it. All of its files appear at once, as in /proc.
func (d *desk) runs() (end func()) {
	d.Helper()
	const pid = 100
	next := filepath.Join(d.TempDir(), "process")
	d.describe(next, pid, 1, command)
	there := filepath.Join(d.proc, fmt.Sprint(pid))
	d.must(os.Rename(next, there))
	return func() { d.Helper(); d.must(os.Rename(there, next)) }
}

// describe writes the files of a process.
func (d *desk) describe(dir string, pid, parent int, name string) {
	d.Helper()
	d.must(os.MkdirAll(dir, 0o700))
	for file, text := range map[string]string{
		"comm": name + "\n", "cmdline": name + "\x00", "cgroup": "0::/user.slice/user-1000.slice/session-2.scope\n",
		"stat":   fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1000 0\n", pid, name, parent),
		"status": "Name:\t" + name + "\nUid:\t0\t0\t0\t0\n",
	} {
		d.must(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
}

// clear removes the request from the Node, as the controller does once it is served.
func (d *desk) clear() {
	node := d.read()
	patch := client.MergeFrom(node.DeepCopy())
	for _, key := range []string{reclaim.RequestedAnnotation, reclaim.ReasonAnnotation, reclaim.RequestedAtAnnotation} {
		delete(node.Annotations, key)
	}
	if err := shared.Management.Client.Patch(d.Context(), node, patch); err != nil {
		d.Error(err)
	}
}

func (d *desk) read() *corev1.Node {
	node := &corev1.Node{}
	if err := shared.Management.Client.Get(d.Context(), client.ObjectKeyFromObject(d.node), node); err != nil {
		d.Error(err)
	}
	return node
}

func (d *desk) await(struck <-chan struct{}) {
	d.Helper()
	select {
	case <-struck:
	case <-d.patient().Done():
		d.Fatal("the write that was to be broken never came")
	}
}

// says waits until the agent has logged all of the lines, in this order.
func (d *desk) says(lines ...string) {
	d.Helper()
	d.must(plane.Until(d.patient(), func(context.Context) error {
		rest := d.agent.LogTail(100)
		for _, line := range lines {
			_, after, ok := strings.Cut(rest, line)
			if !ok {
				return fmt.Errorf("the agent has not said %s", line)
			}
			rest = after
		}
		return nil
	}))
}

// wantRequest waits until the agent is stable, and checks that the Node has one request and no other change.
func (d *desk) wantRequest() {
	d.Helper()
	d.says(waiting)
	writes, _ := d.proxy.seen()
	time.Sleep(quiet)
	later, requests := d.proxy.seen()
	if len(later) != len(writes) {
		d.Errorf("the agent writes on: %v", later)
	}
	if len(requests) != 1 {
		d.Errorf("%d writes have changed the Node, want 1: %v", len(requests), requests)
	}
	got := d.read()
	if at := d.requestedAt(); at.Before(d.begun) || at.After(time.Now()) {
		d.Errorf("requested at %v, want a time since %v", at, d.begun)
	}
	want := d.node.DeepCopy()
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[reclaim.RequestedAnnotation] = reclaim.RequestedValue
	want.Annotations[reclaim.ReasonAnnotation] = reclaim.Reason(command)
	want.Annotations[reclaim.RequestedAtAnnotation] = got.Annotations[reclaim.RequestedAtAnnotation]
	// The agent may have written its state before the request.
	if text, told := got.Annotations[reclaim.StateAnnotation]; told {
		d.wantState(text)
		delete(got.Annotations, reclaim.StateAnnotation)
	}
	for _, node := range []*corev1.Node{want, got} {
		node.ResourceVersion, node.ManagedFields = "", nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.Errorf("Node: -want, +got:\n%s", diff)
	}
}

func (d *desk) wantState(text string) {
	d.Helper()
	want := reclaim.AgentState{Detector: "poll", Config: reclaim.ConfigFor([]string{command}).Hash()}
	if diff := cmp.Diff(want.Text(), text); diff != "" {
		d.Errorf("what the agent says of itself: -want, +got:\n%s", diff)
	}
}

func (d *desk) requestedAt() time.Time {
	d.Helper()
	at, err := time.Parse(time.RFC3339, d.read().Annotations[reclaim.RequestedAtAnnotation])
	d.must(err)
	return at
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
