// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// OnLateCaches runs a story 500 times, 50 times with -short, and checks how often each event in want happened. story
// gets the seed for NewLagging, and returns the result of Counts. OnLateCaches returns the number of runs.
func OnLateCaches(t *testing.T, want map[string]int, story func(seed uint64) map[string]int) uint64 {
	t.Helper()
	stories, wrong := uint64(Shorter(500, 50)), map[string]int{} //nolint:gosec // positive
	for seed := range stories {
		got := story(seed)
		for what, n := range want {
			if got[what] != n {
				wrong[fmt.Sprintf("%s: %d, want %d", what, got[what], n)]++
			}
		}
	}
	for problem, n := range wrong {
		t.Errorf("%s: in %d of %d stories", problem, n, stories)
	}
	return stories
}

// A Lagging is a client whose cache lags behind its writes, like an informer on a busy API server. It shows each
// version of an object in the order of the writes, each for some reads after it was replaced. Lists, and objects
// without a Go type, do not lag.
type Lagging struct {
	t     *testing.T
	store client.WithWatch
	// Client writes to the store, and reads from the cache.
	Client client.WithWatch
	// Sent are all writes that the store accepted: verb and kind.
	Sent []string

	mu      sync.Mutex
	random  *rand.Rand
	objects map[string]*lag
}

// lag has all versions of an object, nil for a deleted one, and the index of the version that the cache shows.
type lag struct {
	versions []client.Object
	shown    int
}

// NewLagging returns a Lagging with random lags, which depend only on seed.
func NewLagging(t *testing.T, store client.WithWatch, seed uint64) *Lagging {
	t.Helper()
	l := &Lagging{t: t, store: store, random: rand.New(rand.NewPCG(seed, 1)), objects: map[string]*lag{}} //nolint:gosec // no secret
	l.Client = interceptor.NewClient(store, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if isUntyped(obj) {
				return c.Get(ctx, key, obj, opts...)
			}
			return l.get(ctx, key, obj)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			return l.write(ctx, "patch", obj, func() error { return c.Patch(ctx, obj, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return l.write(ctx, "patch "+sub+" of", obj, func() error { return c.SubResource(sub).Patch(ctx, obj, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return l.write(ctx, "delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return l.write(ctx, "update", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
	})
	return l
}

func isUntyped(obj client.Object) bool {
	_, untyped := obj.(interface{ UnstructuredContent() map[string]any })
	return untyped || obj.GetObjectKind().GroupVersionKind().Kind != ""
}

// CaughtUp reports whether the cache shows the latest version of each object.
func (l *Lagging) CaughtUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.objects {
		if o.shown < len(o.versions)-1 {
			return false
		}
	}
	return true
}

// maxTries bounds the reconciles of a story; a story needs some hundred.
const maxTries = 5000

// Settle reconciles until five reconciles in a row are idle. In an idle reconcile, the reconciler writes nothing and
// returns no error, the cache is up to date, and others returns false. Settle advances now by each requeue.
func (l *Lagging) Settle(r reconcile.Reconciler, req ctrl.Request, now *clocktesting.FakePassiveClock, others func(ctrl.Result) (did bool)) {
	l.t.Helper()
	for settled, tries := 0, 0; settled < 5; settled, tries = settled+1, tries+1 {
		if tries == maxTries {
			l.t.Fatalf("does not settle in %d reconciles, sent %v", tries, l.Sent)
		}
		n := len(l.Sent)
		res, err := r.Reconcile(l.t.Context(), req)
		if err != nil && !apierrors.IsConflict(err) {
			l.t.Fatal(err)
		}
		now.SetTime(now.Now().Add(max(res.RequeueAfter, 10*time.Millisecond)))
		if did := others(res); did || err != nil || len(l.Sent) > n || !l.CaughtUp() {
			settled = 0
		}
	}
}

// Counts returns the numbers of sent writes, of Events, and of successes in the audit log.
func (l *Lagging) Counts(recorder *events.FakeRecorder, log *bytes.Buffer) map[string]int {
	l.t.Helper()
	counts := map[string]int{}
	for _, change := range l.Sent {
		counts["sent: "+change]++
	}
	close(recorder.Events)
	for e := range recorder.Events {
		counts[fmt.Sprint("Event ", strings.Fields(e)[1])]++
	}
	for text := range strings.Lines(log.String()) {
		line, err := audit.Parse([]byte(text))
		if err != nil {
			l.t.Fatal(err)
		}
		if line.Outcome == audit.Success {
			counts["audited as success"]++
		}
	}
	return counts
}

func (l *Lagging) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.note(ctx, key, into)
	if o.shown < len(o.versions)-1 && l.random.IntN(3) == 0 {
		o.shown++
	}
	v := o.versions[o.shown]
	if v == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: kindOf(into)}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(v.DeepCopyObject()).Elem())
	return nil
}

// note adds the current version in the store if it is new.
func (l *Lagging) note(ctx context.Context, key client.ObjectKey, kind client.Object) *lag {
	name := fmt.Sprintf("%T %s", kind, key)
	o := l.objects[name]
	if o == nil {
		o = &lag{}
		l.objects[name] = o
	}
	now, _ := reflect.TypeAssert[client.Object](reflect.New(reflect.TypeOf(kind).Elem()))
	err := l.store.Get(ctx, key, now)
	if client.IgnoreNotFound(err) != nil {
		l.t.Fatal(err)
	}
	if err != nil {
		now = nil
	}
	if n := len(o.versions); n == 0 || version(o.versions[n-1]) != version(now) {
		o.versions = append(o.versions, now)
	}
	return o
}

func version(obj client.Object) string {
	if obj == nil {
		return ""
	}
	return obj.GetResourceVersion()
}

// write records the version before a write, which another client may have written, and the version after it.
func (l *Lagging) write(ctx context.Context, verb string, obj client.Object, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isUntyped(obj) {
		return do()
	}
	key := client.ObjectKeyFromObject(obj)
	l.note(ctx, key, obj)
	err := do()
	l.note(ctx, key, obj)
	if err == nil {
		l.Sent = append(l.Sent, verb+" "+kindOf(obj))
	}
	return err
}
