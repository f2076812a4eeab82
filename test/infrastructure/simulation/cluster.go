// SPDX-License-Identifier: Apache-2.0

// Package simulation simulates the nodes of a workload cluster. It registers Nodes, renews their leases, and runs and
// ends the pods bound to them, as kubelets do. It does not use Cluster API.
package simulation

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// workers is how many pods of one cluster are processed in parallel, and how many leases renewed. They are enough to
// saturate an API server on two cores.
const workers = 8

// A Cluster simulates the nodes of one workload cluster. It is safe for concurrent use.
type Cluster struct {
	client kubernetes.Interface
	clock  clock.PassiveClock
	pods   cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	nodes map[string]*state
}

// state is the simulation's state of a node.
type state struct {
	Node
	lease *coordinationv1.Lease
	due   time.Time
}

const byNode = "node"

// Start watches the pods of a workload cluster until ctx ends.
func Start(ctx context.Context, cfg *rest.Config) (*Cluster, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making client: %w", err)
	}
	c := &Cluster{
		client: client, clock: clock.RealClock{}, nodes: map[string]*state{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 10*time.Second)),
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = "spec.nodeName!="
	}))
	pods := factory.Core().V1().Pods().Informer()
	if err := c.watch(pods); err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return nil, fmt.Errorf("reading pods: %w", ctx.Err())
	}
	c.pods = pods.GetIndexer()
	for range workers {
		go c.work(ctx)
	}
	go c.renewAll(ctx)
	context.AfterFunc(ctx, c.queue.ShutDown)
	return c, nil
}

func (c *Cluster) watch(pods cache.SharedIndexInformer) error {
	err := pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		return []string{pod.Spec.NodeName}, nil
	}})
	if err != nil {
		return err
	}
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Add(key)
		}
	}
	_, err = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	})
	return err
}

// Ensure creates a node, or changes it to n. It does not recreate a Node object that another client deleted, as a
// kubelet does not.
func (c *Cluster) Ensure(ctx context.Context, n Node) error {
	c.mu.Lock()
	s, known := c.nodes[n.Name]
	awakes := known && s.Silent && !n.Silent
	if known {
		s.Node = n
	}
	c.mu.Unlock()
	if known && !awakes {
		return nil
	}
	lease, err := c.register(ctx, n)
	if err != nil {
		return fmt.Errorf("registering node %s: %w", n.Name, err)
	}
	c.mu.Lock()
	c.nodes[n.Name] = &state{Node: n, lease: lease, due: c.clock.Now().Add(renewal(n.LeaseSeconds))}
	c.mu.Unlock()
	pods, err := c.pods.ByIndex(byNode, n.Name)
	for _, obj := range pods {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Add(key)
		}
	}
	return err
}

func (c *Cluster) register(ctx context.Context, n Node) (*coordinationv1.Lease, error) {
	nodes := c.client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, n.object(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, n.Name, metav1.GetOptions{})
	}
	if err != nil {
		return nil, err
	}
	if node.Spec.ProviderID != n.ProviderID {
		return nil, fmt.Errorf("the name is taken by %q", node.Spec.ProviderID)
	}
	node.Status = n.status(metav1.NewTime(c.clock.Now()))
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, n.lease(node, c.clock.Now()), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return leases.Get(ctx, n.Name, metav1.GetOptions{})
	}
	return lease, err
}

// Remove stops the simulation of a node, as if its machine were switched off. Its Node object stays.
func (c *Cluster) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, name)
}

// DeleteNode deletes the Node object. A missing Node is not an error.
func (c *Cluster) DeleteNode(ctx context.Context, name string) error {
	err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// alive reports whether a node is simulated and not silent.
func (c *Cluster) alive(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.nodes[name]
	return ok && !s.Silent
}

func renewal(leaseSeconds int32) time.Duration { return time.Duration(leaseSeconds) * time.Second / 4 }

// renewAll renews leases as they fall due, until ctx ends.
func (c *Cluster) renewAll(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.renewDue(ctx, now)
		}
	}
}

func (c *Cluster) renewDue(ctx context.Context, now time.Time) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, workers)
	for _, lease := range c.due(now) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c.renew(ctx, lease)
		})
	}
	wg.Wait()
}

// due returns the leases to renew now.
func (c *Cluster) due(now time.Time) []*coordinationv1.Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*coordinationv1.Lease
	for _, s := range c.nodes {
		if !s.Silent && now.After(s.due) {
			s.due = now.Add(renewal(s.LeaseSeconds))
			out = append(out, s.lease.DeepCopy())
		}
	}
	return out
}

func (c *Cluster) renew(ctx context.Context, lease *coordinationv1.Lease) {
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(c.clock.Now())
	lease.Spec.RenewTime = &now
	updated, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		updated, err = leases.Get(ctx, lease.Name, metav1.GetOptions{})
	}
	if err != nil {
		// The next round retries; a missing lease means that its Node is gone.
		ctrl.LoggerFrom(ctx).V(4).Info("Renewing lease", "node", lease.Name, "reason", err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.nodes[lease.Name]; ok {
		s.lease = updated
	}
}
