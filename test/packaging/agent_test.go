// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// The agent's service account, and the guide's names of its Node and of one of its programs.
const (
	account = "reclaim-agent"
	desk    = "desk-42"
	program = "matlab"
)

// TestAgentOfTheGuide runs the agent with the installed identity, as a pod of the DaemonSet, and with the ConfigMap of
// the guide.
func TestAgentOfTheGuide(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	create(ctx, t, agentManifests(t, listening)...)
	create(ctx, t, configMapOfTheGuide(t))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: desk}}
	if err := shared.Management.Client.Create(ctx, node); err != nil {
		t.Fatal(err)
	}
	const machineID = "0123456789abcdef0123456789abcdef"
	node.Status.NodeInfo.MachineID = machineID
	if err := shared.Management.Client.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	id := filepath.Join(dir, "machine-id")
	if err := os.WriteFile(id, []byte(machineID+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pod := agentPod(t)
	user, err := shared.Management.PodUser(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.CommandContext(ctx, filepath.Join(system.DefaultBin(), "reclaim-agent"),
		"--node-name", desk, "--kubeconfig", user.Kubeconfig, "--machine-id-path", id, "--detector=poll")
	agent.Stderr = os.Stderr
	start(t, agent)
	start(t, theProgram(ctx, t, dir))
	err = shared.Management.Wait(ctx, node, func() error {
		if !reclaim.Requested(node.Annotations) {
			return errors.New("it does not ask for its owner")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := node.Annotations[reclaim.ReasonAnnotation], reclaim.Reason(program); got != want {
		t.Errorf("its reason is %q, want %q", got, want)
	}
	nothingRefused(t)
}

func create(ctx context.Context, t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	c := client.WithFieldValidation(shared.Management.Client, metav1.FieldValidationStrict)
	for _, u := range objects {
		if err := c.Create(ctx, u); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// configMapOfTheGuide is the guide's example of the manager's ConfigMap for a Node.
func configMapOfTheGuide(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "guide.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1) {
		for _, u := range decode(t, []byte(m[1])) {
			if u.GetName() == reclaim.ConfigMapName(desk) {
				return u
			}
		}
	}
	t.Fatalf("the guide has no ConfigMap %s", reclaim.ConfigMapName(desk))
	return nil
}

// agentPod creates the DaemonSet's pod on the desk, as the user of Kubernetes' controller, which this plane does not
// run. The policy of the namespace allows no other user.
func agentPod(t *testing.T) *corev1.Pod {
	t.Helper()
	ds := agentDaemonSet(t, listening)
	if err := shared.Management.Client.Get(t.Context(), client.ObjectKeyFromObject(ds), ds); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: ds.Spec.Template.ObjectMeta, Spec: ds.Spec.Template.Spec}
	pod.Namespace, pod.Name, pod.Spec.NodeName = namespace, account, desk
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	if err := as(t, "daemon-set-controller").Create(t.Context(), pod); err != nil {
		t.Fatalf("running the agent as its pod: %v", err)
	}
	return pod
}

// as returns a client with the name of one of Kubernetes' controllers.
func as(t *testing.T, controller string) client.Client {
	t.Helper()
	user, err := shared.Management.User("system:serviceaccount:kube-system:"+controller, "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(user.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// theProgram runs a program with the name only.
func theProgram(ctx context.Context, t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skipf("no program to start: %v", err)
	}
	b, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, program)
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, path, "60")
}

// start runs cmd until the test ends.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// nothingRefused checks that no request of the agent was refused.
func nothingRefused(t *testing.T) {
	t.Helper()
	events, err := shared.Management.AuditEvents()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range events {
		e := &events[i]
		if e.User.Username != "system:serviceaccount:"+namespace+":"+account {
			continue
		}
		seen++
		if e.ResponseStatus != nil && e.ResponseStatus.Code == 403 {
			t.Errorf("refused: %s %s", e.Verb, e.RequestURI)
		}
	}
	if seen == 0 {
		t.Error("no request of the agent")
	}
}
