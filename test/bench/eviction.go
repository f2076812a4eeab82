// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/simulation"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// goalEviction bounds how much longer an eviction takes with the guard.
	goalEviction = 1.3
	// evictors is how many evict in parallel where a rate is measured.
	evictors = 16
	// strangers is the number of pods that are not evicted. strangerSize is the size of the data in each that the guard
	// does not need.
	strangers, strangerSize = 5000, 4096
	// openNamespace has no guard, guardedNamespace has one. For otherNamespace the API server calls another webhook,
	// which allows everything at once.
	openNamespace, guardedNamespace, otherNamespace = "open", "guarded", "other"
)

// An evictionBench is a cluster with the eviction guard, and equal pods in a namespace with the guard and in one
// without.
type evictionBench struct {
	*bench

	cluster *plane.Cluster
	guard   *system.Guard
}

// benchEviction measures evictions with and without the guard, in turns.
func benchEviction(ctx context.Context, b *bench) (err error) {
	start, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := plane.Start(start, plane.Options{Components: []plane.Component{}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	e := &evictionBench{bench: b, cluster: p.Management}
	if e.guard, err = system.NewGuard(start, p, p.Management, system.GuardOptions{Bin: b.bin}); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	if err := errors.Join(e.direct(start), e.another(running), e.prepare(running)); err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	if err := e.resident("at rest"); err != nil {
		return err
	}
	if err := errors.Join(e.latency(ctx), e.rate(ctx)); err != nil {
		return err
	}
	if err := errors.Join(e.resident("after that"), e.crowd(ctx)); err != nil {
		return err
	}
	return e.resident(fmt.Sprintf("with %d pods in the cluster", strangers))
}

// crowd creates pods that are not evicted, and waits until the guard has read the last one.
func (e *evictionBench) crowd(ctx context.Context) error {
	errs := make([]error, evictors)
	var working sync.WaitGroup
	for i := range evictors {
		working.Go(func() {
			for n := i; n < strangers && errs[i] == nil; n += evictors {
				pod := benchPod(openNamespace, podName("stranger", n), nil)
				pod.Spec.NodeName = ""
				pod.Annotations = map[string]string{"example.com/config": strings.Repeat("x", strangerSize)}
				errs[i] = e.cluster.Client.Create(ctx, pod)
			}
		})
	}
	working.Wait()
	return errors.Join(errors.Join(errs...), pause(ctx, e.span))
}

// direct makes the API server call a replica directly: the stand-in for kube-proxy would be one more process in
// between.
func (e *evictionBench) direct(ctx context.Context) error {
	w := e.guard.Webhook
	w.Webhooks[0].ClientConfig.URL = new("https://" + e.guard.Replicas[0].Address + "/eviction")
	return errors.Join(e.cluster.Client.Update(ctx, w), pause(ctx, 2*time.Second))
}

// another makes the API server call a webhook that allows everything for a namespace, until ctx ends.
func (e *evictionBench) another(ctx context.Context) error {
	cert, key, err := e.cluster.Serving()
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	allow := func(context.Context, admission.Request) admission.Response { return admission.Allowed("") }
	server := &http.Server{
		Handler: &webhook.Admission{Handler: admission.HandlerFunc(allow)}, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: patience,
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, "", "") }()
	w := e.guard.Webhook.DeepCopy()
	w.ObjectMeta = metav1.ObjectMeta{Name: otherNamespace}
	w.Webhooks[0].Name = "other.5spot.finos.org"
	w.Webhooks[0].ClientConfig.URL = new("https://" + listener.Addr().String() + "/eviction")
	w.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: otherNamespace}}
	return errors.Join(e.cluster.Client.Create(ctx, w), pause(ctx, 2*time.Second))
}

// prepare runs a plain pod and an operator's pod in each namespace, on a draining Node.
func (e *evictionBench) prepare(ctx context.Context) error {
	kubelet, err := simulation.Start(ctx, e.cluster.Admin.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := kubelet.Ensure(ctx, simulation.Node{Name: "box", ProviderID: "bench:///box", LeaseSeconds: leaseSeconds, Version: "v1.36.3"}); err != nil {
		return err
	}
	cordon := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`))
	if err := e.cluster.Client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}}, cordon); err != nil {
		return err
	}
	for _, ns := range []string{openNamespace, guardedNamespace, otherNamespace} {
		if err := e.fill(ctx, ns); err != nil {
			return fmt.Errorf("namespace %s: %w", ns, err)
		}
	}
	for i := range evictors {
		if err := await.Until(ctx, func(ctx context.Context) error { return e.evictMarked(ctx, podName("db", i)) }); err != nil {
			return err
		}
	}
	return nil
}

// evictMarked evicts a pod, and returns an error if it is not marked for its operator.
func (e *evictionBench) evictMarked(ctx context.Context, name string) error {
	if _, err := e.try(ctx, guardedNamespace, name, false); !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("the guard answers %w", err)
	}
	pod := &corev1.Pod{}
	if err := e.cluster.Client.Get(ctx, client.ObjectKey{Namespace: guardedNamespace, Name: name}, pod); err != nil {
		return err
	}
	if pod.Annotations[evictionv1.RequestedAnnotation] == "" {
		return errors.New("no operator was requested to move the pod")
	}
	return nil
}

func (e *evictionBench) fill(ctx context.Context, ns string) error {
	if err := e.cluster.EnsureNamespace(ctx, ns); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}}
	if err := e.cluster.Wait(ctx, account, func() error { return nil }); err != nil {
		return err
	}
	db := map[string]string{"app": "db"}
	var objects []client.Object
	for i := range evictors {
		objects = append(objects, benchPod(ns, podName("plain", i), nil), benchPod(ns, podName("db", i), db))
	}
	if ns == guardedNamespace {
		objects = append([]client.Object{&evictionv1.ReschedulePolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db"},
			Spec: evictionv1.ReschedulePolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: db},
				Request:     evictionv1.Request{Annotation: &evictionv1.Annotation{Key: "example.com/move", Value: "true"}},
			},
		}}, objects...)
	}
	for _, obj := range objects {
		if err := e.cluster.Client.Create(ctx, obj); err != nil {
			return err
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			if err := e.cluster.Wait(ctx, pod, func() error { return runs(pod) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func runs(pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodRunning {
		return errors.New("it does not run")
	}
	return nil
}

func podName(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }

func benchPod(ns, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "box", Containers: []corev1.Container{{Name: "main", Image: plane.PauseImage}}},
	}
}

// try evicts a pod, and returns how long the answer took.
func (e *evictionBench) try(ctx context.Context, ns, name string, dry bool) (time.Duration, error) {
	var opts []client.SubResourceCreateOption
	if dry {
		opts = append(opts, client.DryRunAll)
	}
	begin := clk.Now()
	err := e.cluster.Client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}, &policyv1.Eviction{}, opts...)
	return clk.Since(begin), err
}

// A victim is evicted as a dry run, so that it can be repeated, or waits for its operator.
type victim struct {
	what, ns, kind string
	waits          bool
}

var victims = []victim{
	{"a pod by a webhook that allows everything", otherNamespace, "plain", false},
	{"a plain pod", guardedNamespace, "plain", false},
	{"a pod that waits for its operator", guardedNamespace, "db", true},
}

// evict evicts the pod with that number, with or without the guard, and returns the duration.
func (e *evictionBench) evict(ctx context.Context, v victim, i int, guarded bool) (time.Duration, error) {
	if !guarded {
		return e.try(ctx, openNamespace, podName(v.kind, i), true)
	}
	took, err := e.try(ctx, v.ns, podName(v.kind, i), !v.waits)
	if v.waits != apierrors.IsTooManyRequests(err) || !v.waits && err != nil {
		return 0, fmt.Errorf("evicting %s: %w", podName(v.kind, i), err)
	}
	return took, nil
}

// latency compares single evictions. One case has a webhook that does nothing, which is the least cost of any webhook.
func (e *evictionBench) latency(ctx context.Context) error {
	var reads []time.Duration
	for range e.runs {
		begin := clk.Now()
		if err := e.cluster.Client.Get(ctx, client.ObjectKey{Namespace: openNamespace, Name: podName("plain", 0)}, &corev1.Pod{}); err != nil {
			return err
		}
		reads = append(reads, clk.Since(begin))
	}
	e.add(spread("reading a pod", reads))
	for _, c := range victims {
		times := map[bool][]time.Duration{}
		for range e.runs + 10 {
			for _, guarded := range []bool{true, false} {
				took, err := e.evict(ctx, c, 0, guarded)
				if err != nil {
					return err
				}
				times[guarded] = append(times[guarded], took)
			}
		}
		without := spread("eviction without the guard", times[false][10:])
		with := spread("eviction of "+c.what, times[true][10:]).against("without", without)
		e.add(without)
		e.add(with.goal(fmt.Sprintf("≤ %v × without", goalEviction), with.within(goalEviction)))
	}
	return nil
}

// rate compares many parallel evictions.
func (e *evictionBench) rate(ctx context.Context) error {
	for _, c := range victims {
		var rates [2]float64
		for _, guarded := range []bool{true, false, false, true} {
			n, err := e.many(ctx, c, guarded)
			if err != nil {
				return err
			}
			i := 0
			if guarded {
				i = 1
			}
			rates[i] += n / 2
		}
		without := one(fmt.Sprintf("evictions without the guard, %d at once", evictors), "per second", evictors, rates[0])
		e.add(without)
		e.add(one(fmt.Sprintf("evictions of %s, %d at once", c.what, evictors), "per second", evictors, rates[1]).against("without", without))
	}
	return nil
}

// many evicts for a while, and returns the evictions per second.
func (e *evictionBench) many(ctx context.Context, v victim, guarded bool) (float64, error) {
	var n atomic.Int64
	errs := make([]error, evictors)
	begin := clk.Now()
	var wg sync.WaitGroup
	for i := range evictors {
		wg.Go(func() {
			for clk.Since(begin) < e.span && errs[i] == nil {
				if _, errs[i] = e.evict(ctx, v, i, guarded); errs[i] == nil {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / clk.Since(begin).Seconds(), errors.Join(errs...)
}

// resident measures the memory of the larger replica.
func (e *evictionBench) resident(when string) error {
	most := 0.0
	for _, r := range e.guard.Replicas {
		kB, err := status(r.PID(), vmRSS)
		if err != nil {
			return err
		}
		most = max(most, kB/1024)
	}
	e.add(one("memory of the guard, "+when, "MiB", len(e.guard.Replicas), most))
	return nil
}
