// SPDX-License-Identifier: Apache-2.0

package detach_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
)

// TestPlacesThatStayOutAreLogged: the feature gate is turned off while a Node is detached.
func TestPlacesThatStayOutAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*world)
		filter string
		want   bool
	}{
		"NothingOut":   {func(*world) {}, "", false},
		"Cordoned":     {func(w *world) { w.edit("ws-1", cordon) }, "", true},
		"NoMember":     {func(w *world) { w.edge.servers["ws-1"].address = "192.0.2.77"; w.edit("ws-1", cordon) }, "", false},
		"OtherManager": {func(w *world) { w.edit("ws-1", cordon) }, "shard-b", false},
		"OwnShard": {func(w *world) {
			w.edit("ws-1", cordon)
			w.settle()
			w.cluster(func(c *clusterv1.Cluster) { c.Labels = map[string]string{clusterv1.WatchLabel: "shard-b"} })
		}, "shard-b", true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c.before(w)
				w.settle()
				var lines []string
				log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
				w.must(detach.GateOff{Live: w, Reader: w, WatchFilter: c.filter}.Start(ctrl.LoggerInto(t.Context(), log)))
				text := strings.Join(lines, "\n")
				if got := strings.Contains(text, "team/lab.ws-1") && strings.Contains(text, "NodeDetach is off"); got != c.want || !c.want && text != "" {
					t.Errorf("got %q, want the NodeAttachment to be named: %t", text, c.want)
				}
			})
		})
	}
}
