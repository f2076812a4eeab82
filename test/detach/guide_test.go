// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// block matches a block of commands on a page.
var block = regexp.MustCompile("(?s)\n```sh\n(.*?)```")

// TestTheCommandsOfTheGuide runs the commands of the guide: to show detached Nodes, and to turn the feature off.
func TestTheCommandsOfTheGuide(t *testing.T) {
	t.Parallel()
	s := newSite(t, "guide")
	s.balance(nil)
	page, err := os.ReadFile(filepath.Join(system.Repository(), "docs", "load-balancers.md"))
	s.must(err)
	blocks := block.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Fatalf("the guide has %d blocks of commands, want one that looks, one that waits, one that looks at rolls, and one that turns it off", len(blocks))
	}
	home, node := t.TempDir(), s.Node(s.machines[0])
	names := strings.NewReplacer(" -A", " -n "+s.Namespace, " -n farm", " -n "+s.Namespace, "batch.worker-7", detach.AttachmentName(s.Namespace, node.Name))
	run := func(commands string) string {
		t.Helper()
		commands = names.Replace(commands) // Other tests have their own objects.
		cmd := exec.CommandContext(s.step(), "bash", "-euo", "pipefail", "-c", commands)
		cmd.Env = append(shared.Management.Environ(home), "PATH="+plane.DefaultBin()+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", commands, err, out)
		}
		return string(out)
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable = true
	s.must(s.Workload.Patch(s.step(), node, client.MergeFrom(before), client.FieldOwner("kubectl-cordon")))
	s.wantState("box-0", "drain")
	s.wantMetrics("fivespot_load_balancers_unreachable", "fivespot_detaching_nodes")
	if out := run(blocks[0][1]); !strings.Contains(out, node.Name) || !strings.Contains(out, "Cordoned") {
		t.Errorf("it does not show that and why Node %s is out:\n%s", node.Name, out)
	}
	if out := run(blocks[1][1]); strings.Count(out, "condition met") != 2 {
		t.Errorf("it does not wait until Node %s is out:\n%s", node.Name, out)
	}
	if out := run(blocks[2][1]); !strings.Contains(out, "edge") {
		t.Errorf("it does not show the load balancer:\n%s", out)
	}
	run(blocks[3][1])
	s.wantNoAttachment() // The Node is still cordoned.
	s.wantState("box-0", "ready")
}

// wantMetrics waits until the manager serves these metrics of the Cluster.
func (f *farm) wantMetrics(names ...string) {
	f.Helper()
	f.until(func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+shared.Manager.Flag("diagnostics-address")+"/metrics", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		for _, name := range names {
			if series := fmt.Sprintf("%s{cluster=%q,namespace=%q", name, f.lab.Key.Name, f.Namespace); !strings.Contains(string(text), series) {
				return fmt.Errorf("nothing begins with %s", series)
			}
		}
		return nil
	})
}
