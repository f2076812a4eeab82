// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// TestAPodIsMarkedOnce has another client that marks the pod between our read and our write. The time of its mark
// stays.
func TestAPodIsMarkedOnce(t *testing.T) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(evictionv1.AddToScheme(scheme))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "db-0", UID: "1", Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: "box"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	policy := &evictionv1.ReschedulePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "db"}, Spec: evictionv1.ReschedulePolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: pod.Labels}, DeadlineSeconds: 60,
		Request: evictionv1.Request{Annotation: &evictionv1.Annotation{Key: "example.com/move", Value: "true"}},
	}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "box"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	const since = "2026-03-02T08:00:00Z"
	others := 0
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(pod, policy, node).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := obj.(*corev1.Pod); ok && others == 0 {
				others++
				theirs := pod.DeepCopy()
				if err := c.Get(ctx, client.ObjectKeyFromObject(pod), theirs); err != nil {
					return err
				}
				theirs.Annotations = map[string]string{"example.com/move": "true", evictionv1.RequestedAnnotation: since}
				if err := c.Update(ctx, theirs); err != nil {
					return err
				}
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	evictor := &eviction.Evictor{Live: c, Policies: c, Cache: c, Write: actuate.New(c), Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 2, 8, 0, 30, 0, time.UTC)), NameProtection: eviction.DefaultNameProtection}
	resp, err := evictor.Evict(t.Context(), eviction.Attempt{Pod: client.ObjectKeyFromObject(pod), By: "drainer"})
	if err != nil || others != 1 || resp.Outcome != verdict.Waiting {
		t.Errorf("got %s, %v, want %s: somebody else has asked", resp.Outcome, err, verdict.Waiting)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	if got := pod.Annotations[evictionv1.RequestedAnnotation]; got != since {
		t.Errorf("it says that it was asked for at %s, want %s", got, since)
	}
}
