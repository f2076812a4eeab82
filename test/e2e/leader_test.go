// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// TestTheOtherReplicaServesAnOwnerWhenTheLeaderDies replaces the shared manager by two replicas with the default lease,
// so it is not parallel.
func TestTheOtherReplicaServesAnOwnerWhenTheLeaderDies(t *testing.T) {
	l := newLab(t, "leader")
	sm := l.running("box", nil)
	node := l.node(sm)
	l.must(shared.Manager.Stop())
	defer func() { l.must(shared.Manager.Start(timeout(t, patience))) }()

	election := []string{"--leader-elect", "--leader-election-namespace=" + system.ManagerAccount.Namespace}
	leader := l.startManager("5spot-leader", election...)
	first := l.waitLeader("")
	l.startManager("5spot-standby", election...)
	l.must(leader.Kill())
	l.askBack(node, "java")
	l.wantReclaimed(sm, "java")
	l.waitLeader(first)
}

// startManager starts a manager without departure cap, which ends with the test.
func (l *lab) startManager(name string, args ...string) *plane.Process {
	l.t.Helper()
	return l.startProgram(name, shared.Program("manager"), slices.Concat(system.Unlimited, args)...)
}

// startProgram starts a manager program with exactly these arguments.
func (l *lab) startProgram(name, program string, args ...string) *plane.Process {
	l.t.Helper()
	proc, err := shared.NewAddon(timeout(l.t, patience), plane.AddonOptions{
		Name: name, Path: program, ServiceAccount: system.ManagerAccount, Args: args,
	})
	l.must(err)
	l.must(proc.Start(timeout(l.t, patience)))
	l.t.Cleanup(func() {
		if l.t.Failed() {
			l.t.Logf("log of %s:\n%s", name, proc.LogTail(40))
		}
		l.must(proc.Stop())
	})
	return proc
}

// waitLeader returns the leader once it differs from before.
func (l *lab) waitLeader(before string) string {
	l.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: system.ManagerAccount.Namespace, Name: "controller-leader-election-5spot",
	}}
	l.until(func(ctx context.Context) error {
		err := shared.Management.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == before || *lease.Spec.HolderIdentity == "") {
			err = errors.New("nobody else leads")
		}
		return err
	})
	return *lease.Spec.HolderIdentity
}
