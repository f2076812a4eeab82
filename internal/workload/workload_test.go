// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/workload"
)

// holding returns a cache or an API server with these objects.
func holding(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

var errBroken = errors.New("no route to host")

// broken returns a reader that fails.
func broken(t *testing.T) client.Reader {
	t.Helper()
	return interceptor.NewClient(holding(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errBroken
		},
	})
}

func TestACacheThatIsLateIsNoPermission(t *testing.T) {
	t.Parallel()
	paused := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "lab"}, Spec: clusterv1.ClusterSpec{Paused: new(true)}}
	runs := &clusterv1.Cluster{ObjectMeta: paused.ObjectMeta}
	none, held := map[string]string{}, map[string]string{clusterv1.PausedAnnotation: ""}
	for name, tc := range map[string]struct {
		reason        string
		cached, live  client.Reader
		annotations   map[string]string
		found, paused bool
		err           error
	}{
		"Late":        {"clusterctl move is not done.", holding(t), holding(t, paused), none, true, true, nil},
		"Seen":        {"What the cache has will do.", holding(t, paused), broken(t), none, true, true, nil},
		"Runs":        {"Neither object is paused.", holding(t, runs), broken(t), none, true, false, nil},
		"Held":        {"One object is paused.", holding(t, runs), broken(t), held, true, true, nil},
		"None":        {"There is no such Cluster.", holding(t), holding(t), none, false, false, nil},
		"HeldAlone":   {"A person holds it, whatever became of its Cluster.", holding(t), holding(t), held, false, true, nil},
		"Unreadable":  {"What cannot be read is not gone: without a Cluster a Machine is let go at once.", broken(t), holding(t), none, false, false, errBroken},
		"UnknownLive": {"Nor is it when the API server does not answer.", holding(t), broken(t), none, false, false, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "box", Annotations: tc.annotations}}
			cluster, isPaused, err := workload.ClusterOf(t.Context(), tc.cached, tc.live, sm, "lab")
			if !errors.Is(err, tc.err) || isPaused != tc.paused || (cluster != nil) != tc.found {
				t.Errorf("%s\ngot %v, paused %t, error %v", tc.reason, cluster, isPaused, err)
			}
		})
	}
}

func TestANodeThatCannotBeReadIsNotGone(t *testing.T) {
	t.Parallel()
	n1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for name, tc := range map[string]struct {
		reason string
		reader client.Reader
		found  bool
		err    error
	}{
		"There":      {"It is what was asked for.", holding(t, n1), true, nil},
		"Gone":       {"There is none, and that is known.", holding(t), false, nil},
		"Unreadable": {"The state is unknown.", broken(t), false, errBroken},
	} {
		node, err := workload.Node(t.Context(), tc.reader, "n1")
		if !errors.Is(err, tc.err) || (node != nil) != tc.found {
			t.Errorf("%s: %s\ngot %v, error %v", name, tc.reason, node, err)
		}
	}
}
