// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
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
)

// refuse makes each write to the workload cluster fail with err.
func (w *world) refuse(err error) {
	w.Fail = func(n int) (before, after error) {
		if w.Writes[n] == reports[0] {
			return nil, nil
		}
		return err, nil
	}
}

func TestTheInstallationIsReported(t *testing.T) {
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
		"Forbidden":     {"The user of the kubeconfig has no permission.", apierrors.NewForbidden(namespaces, "x", errors.New("no")), "allow it to the user of the Cluster's kubeconfig"},
		"Unreachable":   {"It may pass.", &url.Error{Op: "Patch", URL: "https://lab", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, "it is tried again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "java")
			if tc.err != nil {
				w.refuse(tc.err)
			}
			_ = w.reconcile()
			if tc.err == nil {
				w.wantInstalled(metav1.ConditionTrue, "is installed")
				return
			}
			w.wantInstalled(metav1.ConditionFalse, "installing reclaim agent: applying Namespace")
			w.wantInstalled(metav1.ConditionFalse, tc.want)
			w.Fail = nil
			w.settle()
			w.wantInstalled(metav1.ConditionTrue, "is installed")
		})
	}
}

// TestTheSameFailureKeepsItsText covers error messages that contain a time.
func TestTheSameFailureKeepsItsText(t *testing.T) {
	w := newWorld(t, "java")
	for i := range 3 {
		w.refuse(apierrors.NewInternalError(fmt.Errorf("certificate has expired: current time is 09:00:0%d", i)))
		if w.reconcile() == nil {
			t.Fatal("it must be tried again")
		}
		w.wantInstalled(metav1.ConditionFalse, "09:00:00")
	}
	if n := len(w.Writes) - len(w.installer()); n != 1 {
		t.Errorf("%d reports of one failure", n)
	}
}

// TestAConflictIsWaitedFor counts tries: a lasting conflict must not cause a stream of requests.
func TestAConflictIsWaitedFor(t *testing.T) {
	w := newWorld(t, "java")
	w.settle()
	ds := w.daemonSet()
	w.Edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "evil" })
	w.refuse(apierrors.NewConflict(schema.GroupResource{Resource: "daemonsets"}, "x", errors.New("a webhook says so")))
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
	w.wantInstalled(metav1.ConditionFalse, "webhook")
	w.Fail = nil
	w.want("it is made up for", w.settle(), []string{"update DaemonSet"}, reports)
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
	ds := w.daemonSet()
	w.Edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "evil" })
	w.refuse(errors.New("no"))
	if err := w.reconcile(); err == nil {
		t.Fatal("nothing fails")
	}
	w.Fail = nil
	w.want("the next look is a thorough one", w.settle(), replaced(checks, "update ServiceAccount", "apply ServiceAccount"), reports)
	if !w.Read(gone) {
		t.Error("the agent has no ServiceAccount: it cannot be heard")
	}
}
