// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"net/http"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// TestWhatMayNotBeDone takes rights away from the guard. It says so, and nobody is told that a pod
// has gone; when it has them back, it goes on.
func TestWhatMayNotBeDone(t *testing.T) {
	t.Parallel()
	w := ownWorld(t, guardOptions())
	l := newLab(t, w, 1)
	l.policy()
	l.cordon(true, l.nodes[0])
	l.protected("db", l.nodes[0])
	for _, verb := range []string{"get", "patch"} {
		l.mayPods(verb, false)
		l.eventually(http.StatusInternalServerError, "cannot "+verb+" resource", "db")
		l.wantAsked(false, "db")
		l.want(http.StatusInternalServerError, "cannot "+verb+" resource", l.evict("db"))
		l.mayPods(verb, true)
	}
	l.eventually(http.StatusTooManyRequests, "", "db")
	l.wantAsked(true, "db")
}

// mayPods says whether the guard may do something with pods.
func (l *lab) mayPods(verb string, may bool) {
	l.t.Helper()
	edit(l, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "fivespot-eviction-guard"}}, func(r *rbacv1.ClusterRole) {
		i := slices.IndexFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
		if may {
			r.Rules[i].Verbs = append(r.Rules[i].Verbs, verb)
		} else {
			r.Rules[i].Verbs = slices.DeleteFunc(r.Rules[i].Verbs, func(v string) bool { return v == verb })
		}
	})
}

// eventually evicts a pod until it is said what is wanted: what the API server knows of rights, and of
// those that it calls, is a little late.
func (l *lab) eventually(want int32, says, pod string) {
	l.t.Helper()
	l.must(plane.Until(l.ctx(), func(ctx context.Context) error {
		status, err := l.tryEvict(ctx, pod)
		if err != nil {
			return err
		}
		return said(want, says, status)
	}))
}
