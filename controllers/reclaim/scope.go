// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/lifecycle"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// nodeReadTimeout bounds the read of a Node, and providerReadTimeout the read of provider objects. Both use
// caches. Before its first list, a cache blocks while the workload cluster or a conversion webhook fails.
// nodeReadTimeout is short, because the end of the first list triggers a reconcile.
const (
	nodeReadTimeout     = 250 * time.Millisecond
	providerReadTimeout = 5 * time.Second
)

// scope holds what one reconcile reads.
type scope struct {
	// at is when the reconcile started.
	at        time.Time
	scheduled *v1alpha1.ScheduledMachine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// node is nil if there is none, or if it cannot be read.
	node *corev1.Node
	// host is the accepted host data of the Machine. readNode sets it.
	host children.Host
	// children are the objects to remove. They have only the Machine until providerRead is set.
	children children.Set
	// providerRead reports that the provider objects were read.
	providerRead bool
	// unseen is why the Node could not be read, unread why provider objects could not. Their state is unknown then.
	unseen, unread error
	// unrecorded is why a person's request could not be counted and reported.
	unrecorded error
	// ejected reports that the Machine's deletion was requested. refused reports that a part of the removal failed, so
	// that hooks or waits may still block it.
	ejected, refused bool
}

// observe reads objects of the management cluster that need no provider. It returns nil if the object is paused. After
// an error, the Machine is unknown.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	s := &scope{at: r.Clock.Now(), scheduled: sm}
	var paused bool
	var err error
	if s.cluster, paused, err = workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName); err != nil {
		return s, err
	}
	if paused {
		return nil, nil
	}
	s.children.Machine, err = r.Children.Machine(ctx, sm)
	if err == nil && s.children.Machine == nil && sm.BeingReclaimed() {
		// Absence ends the reclaim, so that a stale cache must not decide it.
		s.children.Machine, err = r.Children.Uncached().Machine(ctx, sm)
	}
	if err != nil {
		return s, fmt.Errorf("reading Machine: %w", err)
	}
	return s, nil
}

// readNodeAndProvider reads the Node and, during and after a reclaim, the infrastructure. A failed or slow read is
// stored in unseen or unread and is no error: all other steps come first.
func (r *Reconciler) readNodeAndProvider(ctx context.Context, s *scope) {
	if err := r.readNode(ctx, s); err != nil {
		s.unseen = fmt.Errorf("looking at Node: %w", err)
	}
	if _, served := s.scheduled.ServedReclaim(); served || s.scheduled.BeingReclaimed() {
		r.readProviderObjects(ctx, s)
	}
}

// readNode reads the accepted Node of the Machine. If it has no fresh request and the Machine names another Node,
// readNode reads that one, too. It uses that Node if its request is fresh, or if it has a request, the accepted
// Node has none, and it has the provider ID of the Machine. A rejected nodeRef or a leftover request must not cost an
// owner the machine.
func (r *Reconciler) readNode(ctx context.Context, s *scope) error {
	var hostErr error
	if s.host, hostErr = r.Children.Host(ctx, s.scheduled, s.children.Machine); hostErr != nil {
		s.host = children.Unscreened(s.scheduled, s.children.Machine)
	}
	// Cluster API's copy of the machine ID does not count: it follows the Node.
	s.host.MachineID = children.Known(s.scheduled, s.children.Machine).MachineID
	cluster := workload.ClusterKey(s.scheduled)
	node, err := r.observeNode(ctx, cluster, s.nodeName())
	s.node = node
	accepted := s.classifyRequest(node)
	if s.host.Reported.Node == s.host.Node || s.host.Reported.Node == "" || accepted == lifecycle.FreshRequest {
		return errors.Join(hostErr, err)
	}
	other, otherErr := r.observeNode(ctx, cluster, s.host.Reported.Node)
	reported := s.classifyRequest(other)
	if reported == lifecycle.FreshRequest || reported != lifecycle.NoRequest && accepted == lifecycle.NoRequest && s.host.Proves(other) {
		s.node = other
	}
	return errors.Join(hostErr, err, otherErr)
}

// classifyRequest classifies the request on a Node.
func (s *scope) classifyRequest(node *corev1.Node) lifecycle.Request {
	return classify(node, s.children.Machine, s.served(), s.host)
}

// readProviderObjects reads the provider objects of the machine.
func (r *Reconciler) readProviderObjects(ctx context.Context, s *scope) {
	s.providerRead = true
	s.unread = r.atProvider(ctx, callKey{"reading", s.provider()}, providerReadTimeout, func(ctx context.Context) error {
		rest, err := r.Children.Read(ctx, s.scheduled, s.scheduled.BeingReclaimed())
		if err != nil {
			return fmt.Errorf("looking at infrastructure: %w", err)
		}
		rest.Machine = s.children.Machine // It may have changed since it was read.
		s.children = rest
		for _, p := range rest.Unread {
			err = errors.Join(err, errors.New(p.Message))
		}
		return err
	})
}

// atProvider calls an API of a provider, within the limits of calls and a timeout. Such a call may take as long as the
// provider's webhook. Reads and writes have separate limits, because reads may succeed from a cache while writes fail.
func (r *Reconciler) atProvider(ctx context.Context, at callKey, timeout time.Duration, call func(context.Context) error) error {
	done, err := r.calls.begin(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = call(ctx)
	done(actuate.IgnoreSuppressed(err))
	return err
}

// provider returns the infrastructure kind of the machine, the key for the limit.
func (s *scope) provider() string {
	if m := s.children.Machine; m != nil {
		return m.Spec.InfrastructureRef.Kind + "." + m.Spec.InfrastructureRef.APIGroup
	}
	return children.InfrastructureOf(s.scheduled).Kind().GroupKind().String()
}

// observeNode watches the Nodes of the cluster and returns the named one. Without a connection it returns nil: a new
// connection triggers a reconcile.
func (r *Reconciler) observeNode(ctx context.Context, cluster client.ObjectKey, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeReadTimeout)
	defer cancel()
	if err := r.nodes.Start(ctx, cluster); err != nil {
		return nil, workload.IgnoreNotConnected(err)
	}
	if name == "" {
		return nil, nil
	}
	reader, err := r.ClusterCache.GetReader(ctx, cluster)
	if err != nil {
		return nil, workload.IgnoreNotConnected(err)
	}
	return workload.Node(ctx, reader, name)
}

// machineVersion returns the resourceVersion of the cached Machine, empty if there is none.
func (s *scope) machineVersion() string {
	if s.children.Machine == nil {
		return ""
	}
	return s.children.Machine.ResourceVersion
}

// nodeName returns the accepted Node of the Machine. Without a Machine it returns the Node of the last served request,
// which may have to be cleared.
func (s *scope) nodeName() string {
	if s.children.Machine != nil {
		return s.host.Node
	}
	return s.served().Node
}

// existsAfterReclaim reports whether an object of the machine exists although the owner has the machine. Its creator
// had not seen yet that the schedule is disabled. This can happen after a request of a person; a request on a Node
// needs a Machine.
func (s *scope) existsAfterReclaim() bool {
	_, reclaimed := s.scheduled.ServedReclaim()
	return reclaimed && !s.scheduled.ScheduleEnabled() && (s.children.Machine != nil || s.children.Infrastructure != nil)
}

// deleted reports whether the Machine is being deleted.
func (s *scope) deleted() bool {
	return s.children.Machine != nil && !s.children.Machine.DeletionTimestamp.IsZero()
}

// ownerRequest returns the current request, or else the last served one.
func (s *scope) ownerRequest() v1alpha1.ReclaimRecord {
	if record, ok := s.scheduled.ReclaimRequest(); ok {
		return record
	}
	return s.served()
}

// request returns the current request, zero if there is none.
func (s *scope) request() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.ReclaimRequest()
	return record
}

// uncounted reports whether the request of a person is not counted and reported yet.
func (s *scope) uncounted() bool {
	record, requested := s.scheduled.ReclaimRequest()
	return requested && record.ByPerson() && record.SeenAt == ""
}

// served returns the last served request, zero if there is none.
func (s *scope) served() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.LastReclaim()
	return record
}
