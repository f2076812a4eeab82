// SPDX-License-Identifier: Apache-2.0

package runtimesdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// patience bounds one step. It is long, because a late step on a busy machine is no bug. Core times out after a minute.
const patience = time.Minute

// world is an installed system: 5-Spot's Deployment and webhook configuration exist, although its manager is a process
// on this machine.
type world struct {
	*testing.T
	config     *runtimev1.ExtensionConfig
	deployment *appsv1.Deployment
	owner      *admissionregistrationv1.ValidatingWebhookConfiguration
}

// newWorld returns when everything runs and 5-Spot is registered.
func newWorld(t *testing.T) *world {
	t.Helper()
	labels := map[string]string{"control-plane": "controller-manager"}
	w := &world{
		T: t, config: &runtimev1.ExtensionConfig{ObjectMeta: metav1.ObjectMeta{Name: "fivespot"}},
		owner: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "fivespot-validating-webhook-configuration"}},
		deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: system.ManagerAccount.Namespace, Name: "fivespot-controller-manager"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager:v1"}}},
				},
			},
		},
	}
	for _, obj := range []client.Object{w.owner, w.deployment} {
		if err := shared.Management.Client.Create(t.Context(), obj); !apierrors.IsAlreadyExists(err) {
			w.must(err)
		}
	}
	w.scale(2)
	for _, p := range []*plane.Process{shared.Core(), shared.Manager} {
		if p.PID() == 0 {
			w.start(p)
		}
	}
	w.waitDiscovered()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) start(p *plane.Process) { w.Helper(); w.must(p.Start(w.ctx())) }
func (w *world) stop(p *plane.Process)  { w.Helper(); w.must(p.Stop()) }
func (w *world) kill(p *plane.Process)  { w.Helper(); w.must(p.Kill()) }

// scale sets the replicas of 5-Spot's Deployment.
func (w *world) scale(replicas int32) {
	w.Helper()
	w.edit(w.deployment, func() { w.deployment.Spec.Replicas = &replicas })
}

func (w *world) edit(obj client.Object, change func()) {
	w.Helper()
	c, ctx := shared.Management.Client, w.ctx()
	w.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		before := obj.DeepCopyObject().(client.Object)
		change()
		return c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}))
}

// waitDiscovered waits until Cluster API has discovered 5-Spot's handlers.
func (w *world) waitDiscovered() {
	w.Helper()
	w.must(shared.Management.Wait(w.ctx(), w.config, func() error {
		c := conditions.Get(w.config, runtimev1.ExtensionConfigDiscoveredCondition)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != w.config.Generation {
			return fmt.Errorf("it is not discovered: %v", c)
		}
		if len(w.config.Status.Handlers) == 0 { // Core writes them after the condition.
			return errors.New("its handlers are not known")
		}
		return nil
	}))
}

func (w *world) waitWithdrawn() {
	w.Helper()
	w.must(shared.Management.WaitGone(w.ctx(), w.config))
}

// registered reports whether the ExtensionConfig exists.
func (w *world) registered() bool {
	w.Helper()
	err := shared.Management.Client.Get(w.ctx(), client.ObjectKeyFromObject(w.config), w.config)
	w.must(client.IgnoreNotFound(err))
	return err == nil
}

// warm is core's log line once it has discovered all extensions, and cold its line if it could not.
const (
	warm = "The extension registry is warmed up"
	cold = "ExtensionConfig registry warmup failed"
)

// said counts the lines of a program's log, since its first start, that contain text.
func (w *world) said(p *plane.Process, text string) int {
	w.Helper()
	log, err := os.ReadFile(p.LogPath())
	w.must(err)
	return strings.Count(string(log), text)
}

// waitSaid waits until a program has logged text more than n times.
func (w *world) waitSaid(p *plane.Process, text string, n int) {
	w.Helper()
	w.must(plane.Until(w.ctx(), func(context.Context) error {
		if w.said(p, text) <= n {
			return errors.New(p.Name() + " does not say: " + text)
		}
		return nil
	}))
}

// startCore starts core, and returns how long it took to become ready.
func (w *world) startCore() time.Duration {
	w.Helper()
	n, began := w.said(shared.Core(), warm), time.Now()
	w.start(shared.Core())
	w.waitSaid(shared.Core(), warm, n)
	return time.Since(began).Round(10 * time.Millisecond)
}
