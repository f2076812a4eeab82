// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// slack allows for slow calls on a busy machine.
const slack = 5 * time.Second

// another numbers the unprotected pods, because an evicted pod may not have ended yet.
var another atomic.Int64

// others evicts unprotected pods, one after the other, until stop is called. stop returns the number of evictions and
// the duration of the longest.
func (l *lab) others() (stop func() (n int, longest time.Duration)) {
	l.t.Helper()
	var stopped atomic.Bool
	var wg sync.WaitGroup
	n, longest := 0, time.Duration(0)
	wg.Go(func() {
		for !stopped.Load() && !l.t.Failed() {
			name := fmt.Sprintf("another-%d", another.Add(1))
			l.run(name, l.nodes[0], nil)
			begin := time.Now()
			status, err := l.tryEvict(l.t.Context(), name)
			if err != nil || status != nil {
				l.t.Errorf("%s is held: %v %v", name, status, err)
			}
			longest = max(longest, time.Since(begin))
			n++
		}
	})
	return func() (int, time.Duration) {
		stopped.Store(true)
		wg.Wait()
		return n, longest
	}
}

// TestReplicasComeAndGo kills each replica, and replaces each as a Deployment does, while unprotected pods are evicted.
func TestReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			o := guardOptions()
			o.FailurePolicy = policy
			l := newLab(t, ownWorld(t, o), 1)
			l.policy()
			l.cordon(true, l.nodes[0])
			l.protected("db", l.nodes[0])
			l.evictUntilMarked("db")
			stop := l.others()
			for range 3 {
				for _, r := range l.guard.Replicas {
					l.must(l.guard.Terminate(r))
					l.want(http.StatusTooManyRequests, waiting, l.evict("db"))
					l.must(l.guard.Start(l.ctx(), r))
				}
			}
			if policy == admissionregistrationv1.Ignore { // A crash may interrupt an answer.
				for _, r := range l.guard.Replicas {
					l.must(r.Kill())
					time.Sleep(time.Second)
					l.must(l.guard.Start(l.ctx(), r))
				}
			}
			n, longest := stop()
			t.Logf("%d evictions, the longest took %s", n, longest)
			if n < 20 || longest > 5*time.Second {
				t.Errorf("%d pods were evicted, the longest took %s", n, longest)
			}
		})
	}
}

// TestTheGuardIsAway has no replica, with each failure policy.
func TestTheGuardIsAway(t *testing.T) {
	t.Parallel()
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			o := guardOptions()
			o.FailurePolicy = policy
			l := newLab(t, ownWorld(t, o), 1)
			l.policy()
			l.cordon(true, l.nodes[0])
			l.pinned(l.protected("db", l.nodes[0]))
			for _, r := range l.guard.Replicas {
				l.must(r.Kill())
			}
			l.run("other", l.nodes[0], nil)
			if policy == admissionregistrationv1.Ignore {
				l.want(http.StatusTooManyRequests, "disruption budget", l.evict("db"))
				l.want(http.StatusCreated, "", l.evict("other"))
			} else {
				l.want(http.StatusInternalServerError, "failed calling webhook", l.evict("db"))
				l.want(http.StatusInternalServerError, "failed calling webhook", l.evict("other"))
			}
			l.wantAsked(false, "db")
			// The guard works again once the replicas are back.
			for _, r := range l.guard.Replicas {
				l.must(l.guard.Start(l.ctx(), r))
			}
			l.evictUntilMarked("db")
		})
	}
}

// TestAGuardThatHangs delays unprotected evictions by its timeout at most.
func TestAGuardThatHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t, ownWorld(t, guardOptions()), 1)
	for _, r := range l.guard.Replicas {
		l.must(syscall.Kill(r.PID(), syscall.SIGSTOP))
	}
	timeout := time.Duration(*l.guard.Webhook.Webhooks[0].TimeoutSeconds) * time.Second
	var wg sync.WaitGroup
	for i := range 5 {
		name := fmt.Sprintf("other-%d", i)
		l.run(name, l.nodes[0], nil)
		wg.Go(func() {
			begin := time.Now()
			status, err := l.tryEvict(l.ctx(), name)
			if took := time.Since(begin); err != nil || status != nil || took > timeout+slack {
				t.Errorf("%s took %s: %v %v", name, took, status, err)
			}
		})
	}
	wg.Wait()
	for _, r := range l.guard.Replicas {
		l.must(syscall.Kill(r.PID(), syscall.SIGCONT))
	}
	l.policy()
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	l.evictUntilMarked("db")
}

// TestOneReplicaHangs while the API server has a connection to it: the API server must switch to the other replica.
func TestOneReplicaHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t, ownWorld(t, guardOptions()), 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	for _, r := range l.guard.Replicas {
		l.must(syscall.Kill(r.PID(), syscall.SIGSTOP))
		begin := time.Now()
		stop := l.others()
		l.must(plane.Until(l.within(2*time.Minute), func(ctx context.Context) error {
			status, err := l.tryEvict(ctx, "db", inBody)
			if err != nil || code(status) != http.StatusTooManyRequests {
				return fmt.Errorf("got %+v, %w", status, err)
			}
			return nil
		}))
		n, longest := stop()
		t.Logf("after %s the other replica answers; meanwhile %d others went, the longest took %s", time.Since(begin), n, longest)
		l.must(syscall.Kill(r.PID(), syscall.SIGCONT))
		l.must(r.WaitReady(l.ctx()))
	}
}

// TestTheCertificateIsReplaced checks that a replica serves the new certificate without a restart.
func TestTheCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	l := newLab(t, ownWorld(t, system.GuardOptions{}), 1)
	serial := func(r *system.GuardReplica) string {
		conn, err := tls.Dial("tcp", r.Address, &tls.Config{InsecureSkipVerify: true})
		l.must(err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before, pid := map[string]string{}, map[string]int{}
	for _, r := range l.guard.Replicas {
		before[r.Name()], pid[r.Name()] = serial(r), r.PID()
	}
	stop := l.others()
	l.must(l.guard.NewCertificate())
	for _, r := range l.guard.Replicas {
		l.must(plane.Until(l.ctx(), func(context.Context) error {
			if serial(r) == before[r.Name()] {
				return errNotYet
			}
			return nil
		}))
		if r.PID() != pid[r.Name()] {
			t.Errorf("%s was restarted", r.Name())
		}
	}
	stop()
	pod := l.run("db", l.nodes[0], labels)
	l.policy(func(s *evictionv1.ReschedulePolicySpec) { s.HealthyNode = evictionv1.HealthyNodeRelocate })
	l.known(pod)
	l.evictUntilMarked("db")
}
