// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// agentCannot is the agent's exit code if the kernel does not announce processes to it.
const agentCannot = 4

func TestAgentGivesTheBoxBackWhenItsOwnerStartsAProcess(t *testing.T) {
	t.Parallel()
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		t.Skipf("this machine has no identity for the agent to compare: %v", err)
	}
	for _, detector := range []string{"netlink", "poll"} {
		t.Run(detector, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "agent"+detector)
			command := "e2e-" + detector // comm has at most 15 bytes
			sm := l.running("box", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillIfCommands = []string{command} },
				infrav1.PlaneMachineSpec{MachineID: strings.TrimSpace(string(id))})
			l.giveToOwner(sm, detector, command)
		})
	}
}

// giveToOwner runs an agent for the Node of sm, starts a process with the name command, and waits until the machine has
// left.
func (l *lab) giveToOwner(sm *v1alpha1.ScheduledMachine, detector, command string) {
	l.t.Helper()
	node := l.node(sm)
	l.waitConfigured(workload, node.Name, command)
	agent := l.startAgent(node, detector)
	before := l.family(sm)
	holds(l.t, 2*shortly, func(ctx context.Context) error { return unchanged(ctx, before.machine) })

	begin := time.Now()
	owner := l.startOwner(command)
	l.wantReclaimed(sm, command)
	l.t.Logf("from the start of %s to the end of the reclaim: %v", command, time.Since(begin).Round(time.Millisecond))
	l.wantUntouched(owner)
	l.wantEvents(sm, "Warning EmergencyReclaim", "process-match: "+command)
	if agent.PID() == 0 {
		l.t.Logf("the agent ended after its Node was gone:\n%s", agent.LogTail(5))
	}
}

// waitConfigured waits until the Node has the agent's label, and its ConfigMap has these commands.
func (l *lab) waitConfigured(c *plane.Cluster, node string, commands ...string) {
	l.t.Helper()
	l.waitConfig(c, node, reclaim.ConfigFor(commands))
}

// waitConfig waits until the Node has the agent's label, and its ConfigMap this Config.
func (l *lab) waitConfig(c *plane.Cluster, node string, config reclaim.Config) {
	l.t.Helper()
	ctx := timeout(l.t, patience)
	want := config.Text()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(node)}}
	l.must(c.Wait(ctx, cm, func() error {
		if got := cm.Data[reclaim.ConfigMapKey]; got != want {
			return fmt.Errorf("it says %q, not %q", got, want)
		}
		return nil
	}))
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	l.must(c.Wait(ctx, n, func() error {
		if n.Labels[reclaim.AgentLabel] != reclaim.AgentLabelValue {
			return errors.New("it is not opted in")
		}
		return nil
	}))
}

// startAgent runs the released agent as a user with exactly the required permissions. It skips the test if the kernel
// does not answer.
func (l *lab) startAgent(node *corev1.Node, detector string) *plane.Process {
	l.t.Helper()
	name := "agent-" + l.Key.Name
	user, err := workload.User(name)
	l.must(err)
	l.grantAgent(name)
	agent := shared.NewProcess(name, shared.Program("reclaim-agent"),
		[]string{"--node-name=" + node.Name, "--detector=" + detector, "--kubeconfig=" + user.Kubeconfig, "-v"}, nil, nil)
	l.must(agent.Start(timeout(l.t, patience)))
	l.t.Cleanup(func() {
		if l.t.Failed() {
			l.t.Logf("log of the agent:\n%s", agent.LogTail(40))
		}
		if err := agent.Stop(); err != nil {
			l.t.Error(err)
		}
	})
	pause(l.t, shortly)
	if agent.PID() == 0 {
		if log := agent.LogTail(5); strings.Contains(log, "exitCode=4") {
			l.t.Skipf("the kernel does not announce processes to the agent here (exit code %d): %s", agentCannot, log)
		}
		l.t.Fatalf("the agent must run:\n%s", agent.LogTail(20))
	}
	return agent
}

// grantAgent gives a user the permissions of an agent: its Node and the ConfigMaps.
func (l *lab) grantAgent(user string) {
	l.t.Helper()
	ctx := timeout(l.t, patience)
	meta := metav1.ObjectMeta{Name: user}
	inNamespace := metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: user}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, err := range []error{
		workload.Client.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		}}),
		workload.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		}),
		workload.Client.Create(ctx, &rbacv1.Role{ObjectMeta: inNamespace, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		}}),
		workload.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: inNamespace, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		}),
	} {
		l.must(err)
	}
}

// startOwner runs a real process under a unique name.
func (l *lab) startOwner(command string) *exec.Cmd {
	l.t.Helper()
	sleep, err := exec.LookPath("sleep")
	l.must(err)
	program := filepath.Join(l.t.TempDir(), command)
	l.must(copyProgram(sleep, program))
	// A multi-call binary would lose its argument with its name; sleep of coreutils works under any name.
	return l.startCommand(program, "600")
}

// startCommand runs a command until the test ends.
func (l *lab) startCommand(name string, args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	l.must(cmd.Start())
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// wantUntouched checks that a process of the owner runs. A zombie has no program any more.
func (l *lab) wantUntouched(owner *exec.Cmd) {
	l.t.Helper()
	if _, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", owner.Process.Pid)); err != nil {
		l.t.Errorf("the owner's process must never be touched: %v", err)
	}
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
