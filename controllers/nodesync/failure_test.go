// SPDX-License-Identifier: Apache-2.0

package nodesync_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	reclaimapi "github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
)

// refusing makes each write fail with err.
func refusing(err error) func(int) (before, after error) {
	return func(int) (error, error) { return err, nil }
}

func (w *world) outcome() installation.Outcome {
	w.Helper()
	o, ok := w.board.Outcome(client.ObjectKeyFromObject(w.cluster))
	if !ok {
		w.Fatal("nothing is told of the installation")
	}
	return o
}

func TestWhatBecameOfTheInstallationIsTold(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Installed": {"Nothing failed.", nil, ""},
		"NoServerSideApply": {
			"Cluster API's in-memory cluster has none.",
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 415, Reason: metav1.StatusReasonUnsupportedMediaType, Message: "no such media type"}},
			"needs Kubernetes 1.30 or newer",
		},
		"KindNotServed": {"Kubernetes before 1.30 has no such policies.", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "X"}}, "needs Kubernetes 1.30 or newer"},
		"Forbidden":     {"The kubeconfig is somebody's who may not.", apierrors.NewForbidden(namespaces, "x", errors.New("no")), "allow it to the user of the Cluster's kubeconfig"},
		"Unreachable":   {"It may pass.", &url.Error{Op: "Patch", URL: "https://lab", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, "it is tried again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "java")
			if tc.err != nil {
				w.Fail = refusing(tc.err)
			}
			_ = w.reconcile()
			got := w.outcome()
			if (got.Failure.Class == "") != (tc.err == nil) || !strings.Contains(got.Failure.Text, tc.want) || got.Elsewhere {
				t.Errorf("%s\ntold %+v", tc.reason, got)
			}
			if tc.err != nil && !strings.HasPrefix(got.Failure.Text, "installing reclaim agent: applying Namespace") {
				t.Errorf("it must name the object: %s", got.Failure.Text)
			}
			w.Fail = nil
			w.settle()
			if got := w.outcome(); got.Failure.Class != "" || len(got.Nodes) > 0 {
				t.Errorf("it is over: %+v", got)
			}
		})
	}
}

// TestTheSameFailureKeepsItsText covers error messages that contain a time.
func TestTheSameFailureKeepsItsText(t *testing.T) {
	w := newWorld(t, "java")
	told := map[string]bool{}
	for i := range 3 {
		w.Fail = refusing(apierrors.NewInternalError(fmt.Errorf("certificate has expired: current time is 09:00:0%d", i)))
		if w.reconcile() == nil {
			t.Fatal("it must be tried again")
		}
		told[w.outcome().Failure.Text] = true
	}
	if len(told) != 1 || len(w.board.Changes()) != 1 {
		t.Errorf("a status would be written for each of %d texts: %v", len(told), told)
	}
}

func TestAFailureOfOneNodeIsItsOwn(t *testing.T) {
	w := newWorld(t, "java")
	_, other := w.member("other", "idea")
	w.Create(w.configMap(w.node))
	if w.reconcile() == nil {
		t.Fatal("somebody else's ConfigMap must be an error")
	}
	o := w.outcome()
	if f := o.Of(w.node.Name); !strings.Contains(f.Text, "ConfigMap reclaim-agent-"+w.node.Name+" exists and is not managed by 5-Spot") || !strings.Contains(f.Text, "delete it") {
		t.Errorf("its Node must know: %+v", o)
	}
	if f := o.Of(other.Name); f.Class != "" {
		t.Errorf("the other Node is well: %+v", f)
	}
}

func TestSomebodyElsesInstallationIsTold(t *testing.T) {
	w := newWorld(t, "java")
	w.manifests = nil
	w.restart()
	w.settle()
	if !w.outcome().Elsewhere {
		t.Error("nobody can tell who installs the agent")
	}
}

func TestNobodysInstallationIsForgotten(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = nil })
	w.settle()
	if o, ok := w.board.Outcome(client.ObjectKeyFromObject(w.cluster)); ok {
		t.Errorf("nobody asks any more: %+v", o)
	}
}

// TestAConflictIsWaitedFor counts tries: a lasting conflict must not cause a stream of requests.
func TestAConflictIsWaitedFor(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	w.Edit(w.sm, func() { w.sm.Spec.KillIfCommands = []string{"idea"} })
	w.Fail = refusing(apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("a webhook says so")))
	var waited time.Duration
	tries := 0
	for {
		tries++
		res, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.cluster)})
		if err != nil {
			break // The controller backs off from here on, up to five minutes.
		}
		if waited += res.RequeueAfter; res.RequeueAfter < 50*time.Millisecond || tries > 20 {
			t.Fatalf("try %d waits %v, %v in all", tries, res.RequeueAfter, waited)
		}
	}
	if waited < 2*time.Second {
		t.Errorf("a cache that is late is waited for, not only for %v", waited)
	}
	if f := w.outcome().Of(w.node.Name); !strings.Contains(f.Text, "webhook") {
		t.Errorf("who waits must know why: %+v", f)
	}
	w.Fail = nil
	w.want("it is made up for", w.settle(), []string{"patch ConfigMap"})
}

// outdated is a cache that still shows a deleted ServiceAccount.
type outdated struct {
	clustercache.ClusterCache
	shows *metav1.PartialObjectMetadata
}

func (o outdated) GetReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	reader, err := o.ClusterCache.GetReader(ctx, cluster)
	return outdatedReader{reader, o.shows}, err
}

type outdatedReader struct {
	client.Reader
	shows *metav1.PartialObjectMetadata
}

func (o outdatedReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if m, ok := into.(*metav1.PartialObjectMetadata); ok && m.Kind == o.shows.Kind && key == client.ObjectKeyFromObject(o.shows) {
		o.shows.DeepCopyInto(m)
		return nil
	}
	return o.Reader.Get(ctx, key, into, opts...)
}

// TestAfterAFailureNoCacheIsBelieved makes a write fail with an unknown cause. The next reconcile must read all objects
// live.
func TestAfterAFailureNoCacheIsBelieved(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	gone := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: reclaimapi.Namespace, Name: "reclaim-agent"}}
	gone.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	if !w.Read(gone) {
		t.Fatal("no ServiceAccount")
	}
	w.r.ClusterCache = outdated{w.cache, gone.DeepCopy()}
	w.Must(w.Client.Delete(t.Context(), gone))
	w.want("what the cache shows is as it was left", w.settle())
	cm := w.configMap(w.node)
	w.Read(cm)
	w.Edit(cm, func() { cm.Data[reclaimapi.ConfigMapKey] = "" })
	w.Fail = refusing(errors.New("no"))
	if err := w.reconcile(); err == nil {
		t.Fatal("nothing fails")
	}
	w.Fail = nil
	w.want("the next look is a thorough one", w.settle(), replaced(checks, "update ServiceAccount", "apply ServiceAccount"), []string{"patch ConfigMap"})
	if !w.Read(gone) {
		t.Error("the agent has no ServiceAccount: it cannot be heard")
	}
}
