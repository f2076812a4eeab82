// SPDX-License-Identifier: Apache-2.0

package departure_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/controllers/departure"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
)

// seen signals each read of a ScheduledMachine. It is the last read before a manager with a filter determines
// whether it serves the Machine.
type seen struct {
	client.Reader
	looked chan struct{}
}

func (s seen) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, obj, opts...)
	if _, ok := obj.(*v1alpha1.ScheduledMachine); ok {
		select {
		case s.looked <- struct{}{}:
		default:
		}
	}
	return err
}

// run starts the controller in a manager with a filter. looked gets a signal for each reconcile.
func (w *hookWorld) run(filter string) (looked chan struct{}) {
	w.Helper()
	looked = make(chan struct{}, 1)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{Scheme: w.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	w.Must(err)
	r := &departure.HookReconciler{
		Clock: clock.RealClock{}, Reader: seen{mgr.GetClient(), looked}, Live: mgr.GetAPIReader(), Actuate: actuate.New(mgr.GetClient()),
		Recorder: w.recorder, Extensions: w, WatchFilter: filter,
	}
	w.Must(r.SetupWithManager(mgr, controller.Options{SkipNameValidation: new(true)}))
	ctx, stop := context.WithCancel(w.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			w.Errorf("running manager: %v", err)
		}
	})
	w.Cleanup(func() { stop(); ended.Wait() })
	return looked
}

// becomes waits until the Machine has these hooks and a condition with this reason.
func (w *hookWorld) becomes(held, reason string) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		w.Read(w.machine) //nolint:contextcheck // a Fixture has the context of its test
		return w.held() == held && strings.HasPrefix(w.waits(), reason), nil
	})
	if err != nil {
		w.Fatalf("held by %q, %s; want %q, %s", w.held(), w.waits(), held, reason)
	}
}

// TestEventsThatEnqueueAMachine runs the controller in managers. Extensions hold the Machine until the event of the
// case.
func TestEventsThatEnqueueAMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		filter  string
		prepare func(*hookWorld)
		happens func(*hookWorld)
	}{
		"the extension is deleted": {
			happens: func(w *hookWorld) { w.Must(w.Client.Delete(w.Context(), w.hooks[0])) },
		},
		"the extension selects others": {happens: func(w *hookWorld) {
			w.Edit(w.hooks[0], func() { w.hooks[0].Spec.NamespaceSelector.MatchLabels["team"] = "b" })
		}},
		"the namespace is another team's": {
			prepare: func(w *hookWorld) {
				w.team("a")
				w.Edit(w.hooks[0], func() {
					w.hooks[0].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a", corev1.LabelMetadataName: w.sm.Namespace}}
				})
			},
			happens: func(w *hookWorld) { w.team("b") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t, "a-lb")
			w.answers["a-lb"] = 50
			if tc.prepare != nil {
				tc.prepare(w)
			}
			w.run("")
			w.leave()
			w.admit()
			w.becomes("pre-drain pre-terminate", "False WaitingForExtension")
			tc.happens(w)
			w.becomes("", "")
		})
	}
}

// TestALabelThatAppears checks that a manager with a filter starts to serve a Machine when its ScheduledMachine
// or Cluster gets the label.
func TestALabelThatAppears(t *testing.T) {
	ours := func(w *hookWorld, of map[string]string) map[string]string {
		if of == nil {
			of = map[string]string{}
		}
		of[clusterv1.WatchLabel] = "shard-" + w.sm.Namespace
		return of
	}
	for name, happens := range map[string]func(*hookWorld){
		"of the ScheduledMachine": func(w *hookWorld) { w.Edit(w.sm, func() { w.sm.Labels = ours(w, w.sm.Labels) }) },
		"of the Cluster":          func(w *hookWorld) { w.Edit(w.cluster, func() { w.cluster.Labels = ours(w, w.cluster.Labels) }) },
		"of neither any more":     func(w *hookWorld) { w.Edit(w.cluster, func() { w.cluster.Labels = nil }) },
		"of a ScheduledMachine that is gone": func(w *hookWorld) {
			w.Edit(w.cluster, func() { w.cluster.Labels = ours(w, w.cluster.Labels) })
			w.Edit(w.sm, func() { w.sm.Labels = map[string]string{clusterv1.WatchLabel: "another"} })
			w.Must(w.Client.Delete(w.Context(), w.sm))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHookWorld(t)
			w.Edit(w.cluster, func() { w.cluster.Labels = map[string]string{clusterv1.WatchLabel: "another"} })
			looked := w.run("shard-" + w.sm.Namespace)
			w.leave()
			<-looked
			happens(w)
			w.admit()
			w.becomes("", "")
		})
	}
}

// team labels the namespace.
func (w *hookWorld) team(name string) {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.sm.Namespace}}
	w.Edit(ns, func() { ns.Labels["team"] = name })
}
