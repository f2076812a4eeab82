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

// TestWhatMayNotBeDone removes permissions of the guard. The guard reports an error, and never reports a pod as gone.
// Once it has the permissions again, it continues.
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

// mayPods grants or removes a verb on pods.
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

// eventually evicts a pod until it gets the wanted answer: the API server observes changes of roles and of webhooks a
// little later.
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
