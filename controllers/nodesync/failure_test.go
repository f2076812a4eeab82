// SPDX-License-Identifier: Apache-2.0

package nodesync_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
)

// refusing refuses every write.
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

// TestTheSameFailureKeepsItsText is about answers that say when they were given.
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

// TestAConflictIsWaitedFor counts tries: a conflict that stays must not cost the API
// server one after the other.
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
			break // From here on the controller backs off, up to five minutes.
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
