// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// The names of the demo's objects.
const (
	namespace  = "demo"
	clusterKey = "lab"
	nodeName   = "workstation"
)

// A story is one run of the demo.
type story struct {
	*timeline
	*system.System
	options

	dir      string
	workload *plane.Workload
	agent    agent
	// identity is the file with the machine ID, of this machine and of the Node.
	identity string
	// game is the owner's program. Its name is unique to this run, so that concurrent demos do not detect each other's.
	game *plane.Process
	// hold is None if the pods of the Node cannot be held.
	hold reclaim.Hold
	// burner is the process of a pod that uses CPU.
	burner realnode.Process

	seen    chan event
	pending []event
}

// run runs all steps.
func (s *story) run(ctx context.Context) error {
	s.say("Local plane is up: etcd, kube-apiserver, kube-controller-manager, Cluster API, 5-Spot")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, chapter := range []func(context.Context) error{s.chooseNode, s.chooseHold, s.join, s.burn, s.watchOver, s.returns} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// join brings a machine into the cluster, because its window is open.
func (s *story) join(ctx context.Context) (err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.workload, err = s.NewWorkload(limited, plane.WorkloadOptions{Namespace: namespace, Name: clusterKey, RealNodes: s.node == realNode})
	if err != nil {
		return err
	}
	s.say("Workload cluster is up and Cluster API connected: Cluster %s/%s", namespace, clusterKey)
	spec, err := s.machineSpec()
	if err != nil {
		return err
	}
	if err := s.prepareGame(); err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	yaml := manifest(s.clock.Now().UTC(), spec, s.game.Name(), s.hold)
	if _, err := s.Management.KubectlInput(limited, yaml, "apply", "-f", "-"); err != nil {
		return err
	}
	s.say("kubectl apply of a ScheduledMachine whose window is open now:")
	s.quote(yaml)
	return s.await(ctx, machineCreated, nodeRegistered, nodeReady, running)
}

// prepareGame creates the owner's program, without starting it. Its name has at most 15 bytes, which is the length that
// the kernel keeps.
func (s *story) prepareGame() error {
	name := fmt.Sprintf("owners-game-%03x", rand.N(0x1000)) //nolint:gosec // nothing to guess
	program := filepath.Join(s.dir, name)
	if err := os.Symlink(s.Bin("pause"), program); err != nil {
		return err
	}
	s.game = s.NewProcess(name, program, nil, nil, nil)
	return nil
}

// machineID returns the machine ID of this machine, which the Node has, too. If it cannot be read, machineID generates
// one.
func (s *story) machineID() (string, error) {
	s.identity = "/etc/machine-id"
	if b, err := os.ReadFile(s.identity); err == nil && len(strings.TrimSpace(string(b))) > 0 {
		return strings.TrimSpace(string(b)), nil
	}
	s.say("%s cannot be read: this machine gets an identity for the demo", s.identity)
	s.identity = filepath.Join(s.dir, "machine-id")
	id := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) //nolint:gosec // nothing to guess
	return id, os.WriteFile(s.identity, []byte(id+"\n"), 0o600)
}

// manifest is a ScheduledMachine whose window is open from now on for three hours.
func manifest(now time.Time, spec, pattern string, hold reclaim.Hold) string {
	day := func(t time.Time) string { return strings.ToLower(t.Format("Mon")) }
	return fmt.Sprintf(`apiVersion: 5spot.finos.org/v1alpha1
kind: ScheduledMachine
metadata:
  namespace: %s
  name: %s
spec:
  clusterName: %s
  schedule:
    daysOfWeek: [%s-%s]
    hoursOfDay: [%d-%d]
    timezone: UTC
  killIfCommands: [%s]
  reclaimHold: %s
  bootstrapSpec:
    apiVersion: bootstrap.cluster.x-k8s.io/v1beta1
    kind: PlaneConfig
    spec: {}
  infrastructureSpec:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: PlaneMachine
    spec:
      nodeName: %s
      %s
`, namespace, nodeName, clusterKey, day(now), day(now.AddDate(0, 0, 1)), now.Hour(), (now.Hour()+3)%24, pattern, hold, nodeName, spec)
}

// watchOver waits until the agent watches this machine.
func (s *story) watchOver(ctx context.Context) (err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	find := s.startAgent
	if s.node == realNode {
		find = s.installedAgent
	}
	if s.agent, err = find(limited); err != nil {
		return err
	}
	s.say("reclaim-agent runs on this machine, pid %d: %s", s.agent.pid, s.agent.where)
	s.say("reclaim-agent has read ConfigMap %s/%s", reclaim.Namespace, reclaim.ConfigMapName(nodeName))
	select { // The kernel answers within a fifth of this, if it announces processes.
	case <-time.After(time.Second): //nolint:forbidigo // a pause for the reader
	case <-ctx.Done():
		return ctx.Err()
	}
	how := "the kernel announces every program that starts (netlink)"
	if s.detector == "poll" || strings.Contains(s.agent.log(50), `msg="Polling, because`) {
		how = "it polls /proc four times a second (poll): because the kernel cannot announce programs here, or you asked for poll"
	}
	if s.agent.pid == 0 {
		return fmt.Errorf("the reclaim agent ended: %s", s.agent.log(1))
	}
	s.say("reclaim-agent looks for %s: %s", s.game.Name(), how)
	return nil
}

// returns starts the owner's program.
func (s *story) returns(ctx context.Context) error {
	go s.readAgent(ctx)
	events := []milestone{annotated, remembered, emergency, deleting, nodeGone, machineGone}
	if s.hold.Enabled() {
		go s.watchPod(ctx)
		events = append(events, podStopped, podIdle)
	}
	at := s.clock.Now()
	if err := s.game.Start(ctx); err != nil {
		return err
	}
	s.tellAt(at, "The owner starts "+s.game.Name())
	s.executed(at)
	if err := s.await(ctx, matched); err != nil {
		return err
	}
	for _, wanted := range [][]milestone{events, {disabled}} {
		if err := s.await(ctx, wanted...); err != nil {
			return err
		}
	}
	free := s.last.Sub(at)
	s.executed(time.Time{})
	if !s.hold.Enabled() {
		return nil
	}
	return s.sum(ctx, free)
}
