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

// nodeLook and providerLook bound a look at a Node, and at what a provider holds of a
// machine. Both are in caches, which answer at once or, before their first list, not
// for as long as a workload cluster or a conversion webhook is out of order. The Node's
// is short, because the end of that list wakes whoever asks.
const (
	nodeLook     = 250 * time.Millisecond
	providerLook = 5 * time.Second
)

// scope holds what one reconcile reads.
type scope struct {
	// at is when the reconcile started.
	at        time.Time
	scheduled *v1alpha1.ScheduledMachine
	// cluster is nil if there is none.
	cluster *clusterv1.Cluster
	// node is nil if there is none, or if it cannot be seen.
	node *corev1.Node
	// host is what is believed of the host of the Machine, once the Node was looked for.
	host children.Host
	// children are what is to be removed: the Machine alone until looked is set.
	children children.Set
	// looked says that what a provider holds was looked for.
	looked bool
	// unseen says why the Node could not be read, and unread why what a provider holds
	// could not. It is unknown then, and not gone.
	unseen, unread error
	// unrecorded says why a person's request could not be counted and reported.
	unrecorded error
	// ejected says that the Machine was told to go, and refused that a part of that was
	// refused: what makes it wait may still be in its way.
	ejected, refused bool
}

// observe reads what the management cluster holds of its own kinds, which nobody else
// can make wait. It returns nil for an object that is paused.
func (r *Reconciler) observe(ctx context.Context, sm *v1alpha1.ScheduledMachine) (*scope, error) {
	cluster, paused, err := workload.ClusterOf(ctx, r.Reader, r.Children.Live, sm, sm.Spec.ClusterName)
	if err != nil || paused {
		return nil, err
	}
	s := &scope{at: r.Clock.Now(), scheduled: sm, cluster: cluster}
	s.children.Machine, err = r.Children.Machine(ctx, sm)
	if err == nil && s.children.Machine == nil && sm.BeingReclaimed() {
		// "Absent" ends the reclaim: it must not be the answer of a cache that is late.
		s.children.Machine, err = r.Children.Uncached().Machine(ctx, sm)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Machine: %w", err)
	}
	return s, nil
}

// look reads what others hold of the machine: its Node, and where something may be left
// to remove, its infrastructure. What cannot be read in time is unread, and no error:
// everything else is done first.
func (r *Reconciler) look(ctx context.Context, s *scope) {
	if err := r.lookAtNode(ctx, s); err != nil {
		s.unseen = fmt.Errorf("looking at Node: %w", err)
	}
	if _, served := s.scheduled.ServedReclaim(); served || s.scheduled.BeingReclaimed() {
		r.lookAtRest(ctx, s)
	}
}

// lookAtNode reads the Node of the Machine. If that has no request to serve, and the Machine
// names another one, which is not believed, it looks there, too: a Node that asks and proves to be
// of this host is believed. Nothing that is rejected may cost an owner the machine, nor may what
// is left on a Node.
func (r *Reconciler) lookAtNode(ctx context.Context, s *scope) error {
	var doubt error
	if s.host, doubt = r.Children.Host(ctx, s.scheduled, s.children.Machine); doubt != nil {
		s.host = children.Unscreened(s.scheduled, s.children.Machine)
	}
	// What Cluster API holds of the machine ID does not count: it follows the Node.
	s.host.MachineID = children.Known(s.scheduled, s.children.Machine).MachineID
	cluster := workload.ClusterKey(s.scheduled)
	node, err := r.observeNode(ctx, cluster, s.nodeName())
	s.node = node
	asked := s.judge(node)
	if s.host.Says.Node == s.host.Node || s.host.Says.Node == "" || asked == lifecycle.FreshRequest {
		return errors.Join(doubt, err)
	}
	other, otherErr := r.observeNode(ctx, cluster, s.host.Says.Node)
	asks := s.judge(other)
	if asks == lifecycle.FreshRequest || asks != lifecycle.NoRequest && asked == lifecycle.NoRequest && proves(other, s.host) {
		s.node = other
	}
	return errors.Join(doubt, err, otherErr)
}

// judge says what a Node asks for.
func (s *scope) judge(node *corev1.Node) lifecycle.Request {
	return judge(node, s.children.Machine, s.served(), s.host)
}

// lookAtRest reads what a provider holds of the machine.
func (r *Reconciler) lookAtRest(ctx context.Context, s *scope) {
	s.looked = true
	s.unread = r.atProvider(ctx, look{"reading", s.provider()}, func(ctx context.Context) error {
		rest, err := r.Children.Read(ctx, s.scheduled, s.scheduled.BeingReclaimed())
		if err != nil {
			return fmt.Errorf("looking at infrastructure: %w", err)
		}
		rest.Machine = s.children.Machine // It may have been changed since it was read.
		s.children = rest
		for _, p := range rest.Unread {
			err = errors.Join(err, errors.New(p.Message))
		}
		return err
	})
}

// atProvider makes a call that takes as long as the machine's provider takes to answer:
// the API server asks its conversion webhook for whatever is read and written of it.
// A cache may answer to reads while writes fail, so that either is judged by itself.
func (r *Reconciler) atProvider(ctx context.Context, at look, call func(context.Context) error) error {
	done, err := r.looks.begin(at)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, providerLook)
	defer cancel()
	err = call(ctx)
	done(actuate.IgnoreSuppressed(err))
	return err
}

// provider is the kind that decides whose cache is asked.
func (s *scope) provider() string {
	if m := s.children.Machine; m != nil {
		return m.Spec.InfrastructureRef.Kind + "." + m.Spec.InfrastructureRef.APIGroup
	}
	return children.InfrastructureOf(s.scheduled).Kind().GroupKind().String()
}

// observeNode watches the Nodes of the cluster and returns the one of that name.
// A cluster that is not connected shows none: its connection wakes us.
func (r *Reconciler) observeNode(ctx context.Context, cluster client.ObjectKey, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeLook)
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

// machineVersion is the version of the Machine that the cache shows, empty if there is
// none.
func (s *scope) machineVersion() string {
	if s.children.Machine == nil {
		return ""
	}
	return s.children.Machine.ResourceVersion
}

// nodeName is the Node that is believed to be the Machine's; without a Machine, the Node whose request
// was served last and may have to be cleared.
func (s *scope) nodeName() string {
	if s.children.Machine != nil {
		return s.host.Node
	}
	return s.served().Node
}

// returned reports whether something of the machine is there although its owner
// has the box: whoever made it had not yet seen the schedule go off. A person may
// ask at that instant; a Node asks only when there is a Machine.
func (s *scope) returned() bool {
	_, reclaimed := s.scheduled.ServedReclaim()
	return reclaimed && !s.scheduled.ScheduleEnabled() && (s.children.Machine != nil || s.children.Infrastructure != nil)
}

// deleted reports whether the Machine is being deleted.
func (s *scope) deleted() bool {
	return s.children.Machine != nil && !s.children.Machine.DeletionTimestamp.IsZero()
}

// asked is the request that is being served, or else was served last.
func (s *scope) asked() v1alpha1.ReclaimRecord {
	if record, ok := s.scheduled.ReclaimRequest(); ok {
		return record
	}
	return s.served()
}

// request is the request that is being served, zero if there is none.
func (s *scope) request() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.ReclaimRequest()
	return record
}

// uncounted reports whether a person wrote the request and it is not yet counted and reported.
func (s *scope) uncounted() bool {
	record, requested := s.scheduled.ReclaimRequest()
	return requested && record.ByPerson() && record.SeenAt == ""
}

// served is the request that was served last, zero if there is none.
func (s *scope) served() v1alpha1.ReclaimRecord {
	record, _ := s.scheduled.LastReclaim()
	return record
}
