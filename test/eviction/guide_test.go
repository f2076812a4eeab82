// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/operator"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// block is an object or commands on a page.
var block = regexp.MustCompile("(?s)\n```(sh|yaml)\n(.*?)```")

// TestTheGuide runs the commands of docs/operators.md in their order.
func TestTheGuide(t *testing.T) {
	t.Parallel()
	l := newLab(t, shared, 2)
	page, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "operators.md"))
	l.must(err)
	names := strings.NewReplacer(
		"namespace db ", "namespace "+l.ns+" ", "-n db ", "-n "+l.ns+" ", "namespace: db}", "namespace: "+l.ns+"}",
		"worker-7", l.nodes[0], " -A", " -n "+l.ns, // Other tests use other names.
	)
	home := t.TempDir()
	run := func(commands string) string {
		t.Helper()
		cmd := exec.CommandContext(l.within(2*patience), "bash", "-euo", "pipefail", "-c", names.Replace(commands))
		cmd.Env = append(l.Environ(home), "PATH="+plane.DefaultBin()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", commands, err, out)
		}
		return string(out)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}
	edit(l, ns, func(ns *corev1.Namespace) { delete(ns.Labels, evictionv1.GuardedLabel) })
	blocks := block.FindAllStringSubmatch(string(page), -1)
	var kinds []string
	for _, b := range blocks {
		kinds = append(kinds, b[1])
	}
	if !slices.Equal(kinds, []string{"yaml", "sh", "sh", "sh", "sh", "sh", "sh"}) {
		t.Fatalf("the page has %v, want a policy, the label, a drain, a dry run, and how it is turned off; test/packaging runs the last two", kinds)
	}
	run("kubectl apply -f - <<'EOF'\n" + blocks[0][2] + "EOF\n")
	run(blocks[1][2])
	l.must(l.Client.Get(l.ctx(), client.ObjectKey{Name: l.ns}, ns))
	if ns.Labels[evictionv1.GuardedLabel] != "enabled" {
		t.Fatalf("labels %v", ns.Labels)
	}
	cluster := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "cluster"}} // kubectl requires that the pod's controller exists.
	l.must(l.Client.Create(l.ctx(), cluster))
	owned := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: cluster.Name, UID: cluster.UID, Controller: new(true)}}
	}
	l.protected("cb-0", l.nodes[0], owned)
	if out := run(blocks[3][2]); strings.Contains(out, wouldAsk) {
		t.Errorf("a dry run on a Node that is not cordoned says:\n%s", out)
	}
	l.cordon(true, l.nodes[0])
	if out := run(blocks[3][2]); !strings.Contains(out, wouldAsk) {
		t.Errorf("the dry run says:\n%s", out)
	}
	l.wantAsked(false, "cb-0")
	l.operator(func(o *operator.Options) { o.Delay = work })
	if out := run(blocks[2][2]); !strings.Contains(out, "drained") || !strings.Contains(out, "cb-0") {
		t.Errorf("it does not say that the Node is drained, and which pod was moved:\n%s", out)
	}
	run(blocks[4][2])
	l.must(plane.Until(l.within(keep+patience+time.Minute), func(ctx context.Context) error {
		list := &evictionv1.RescheduleRequestList{}
		if err := l.Client.List(ctx, list, client.InNamespace(l.ns)); err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d requests are left", len(list.Items))
		}
		return nil
	}))
}
