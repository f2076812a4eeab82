// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// patience bounds one step. A control plane in memory takes 40 s.
const patience = 3 * time.Minute

// TestClustersInMemoryRun applies templates to a complete management cluster: their machines join, and leave when their
// windows close.
func TestClustersInMemoryRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := system.Start(ctx, system.Options{Plane: plane.Options{
		Components: plane.InMemory(), FeatureGates: map[string]bool{"ClusterTopology": true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	// Parallel subtests end after this function, and before its clean-up.
	t.Cleanup(func() {
		if t.Failed() {
			s.DumpLogs(t.Output(), 20)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"scheduled-in-memory", "scheduled-topology"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apply(t, s, name)
			joinsAndLeaves(t, s, name)
		})
	}
	t.Run("scheduled-kubeadm-docker", func(t *testing.T) {
		t.Parallel()
		apply(t, s, "scheduled-kubeadm-docker", "--dry-run=server") // the furthest possible step without Docker
	})
}

// apply applies a flavor with an open window, in a namespace with its name.
func apply(t *testing.T, s *system.System, name string, args ...string) {
	t.Helper()
	if err := s.Management.EnsureNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	set := required()
	maps.Copy(set, map[string]string{"FIVESPOT_SCHEDULE_DAYS": "mon-sun", "FIVESPOT_SCHEDULE_HOURS": "0-23"})
	docs := newUser(t).clusterctl(set, "generate", "cluster", name, "--target-namespace", name,
		"--from", filepath.Join(directory(), clusterTemplate+name+".yaml"))
	if class := classes[name]; class != "" {
		docs = read(t, class) + "---\n" + docs
	}
	args = append([]string{"apply", "--validate=strict", "-n", name, "-f", "-"}, args...)
	if _, err := s.Management.KubectlInput(t.Context(), docs, args...); err != nil {
		t.Fatal(err)
	}
}

// joinsAndLeaves follows the machine of a template, and measures the durations.
func joinsAndLeaves(t *testing.T, s *system.System, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	memory, err := s.WaitInMemory(ctx, client.ObjectKey{Namespace: name, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	c := &specs.Cluster{T: t, Management: s.Management.Client, Workload: memory.Client, Patience: patience}
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name + "-desk-1"}}
	c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	c.WantRunning(sm)
	if got := c.Node(sm).Status.NodeInfo.KubeletVersion; got != plane.Version {
		t.Errorf("the Node has version %s, not that of the Cluster, %s", got, plane.Version)
	}
	t.Logf("a machine leaves in %v", turn(c, sm, specs.Closed(), v1alpha1.PhaseInactive))
	c.WantCleared(sm)
	t.Logf("a machine joins in %v", turn(c, sm, specs.Always(), v1alpha1.PhaseActive))
	if name == "scheduled-in-memory" {
		wantUnheard(t, s, c, sm)
	}
	c.Remove(sm)
	nodes := &corev1.NodeList{}
	if err := memory.Client.List(ctx, nodes); err != nil || len(nodes.Items) != 1 {
		t.Errorf("only the Node of the control plane may be left, got %d Nodes, %v", len(nodes.Items), err)
	}
}

// wantUnheard requests an agent that cannot be installed, because a cluster in memory has no server-side apply. It
// checks that status, Event and metric report that.
func wantUnheard(t *testing.T, s *system.System, c *specs.Cluster, sm *v1alpha1.ScheduledMachine) {
	t.Helper()
	if err := c.Edit(sm, func() { sm.Spec.KillIfCommands = []string{"java"} }); err != nil {
		t.Fatal(err)
	}
	c.WaitCondition(sm, metav1.Condition{Type: v1alpha1.OwnerProtectedCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.AgentNotInstalledReason},
		"installing reclaim agent: applying Namespace 5spot-system", "needs Kubernetes 1.30 or newer")
	c.WaitEvents(sm, "Warning OwnerUnprotected")
	want := fmt.Sprintf("fivespot_machine_conditions{cluster=%q,condition=\"OwnerProtected\",namespace=%q,reason=\"AgentNotInstalled\",status=\"False\"} 1\n", sm.Spec.ClusterName, sm.Namespace)
	if got := managerMetrics(t, s); !strings.Contains(got, want) {
		t.Errorf("no metric %s", want)
	}
}

// managerMetrics reads the metrics at the address in the manager's log.
func managerMetrics(t *testing.T, s *system.System) string {
	t.Helper()
	log, err := os.ReadFile(s.Manager.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`"Serving metrics server".* bindAddress="([^"]+)"`).FindSubmatch(log)
	if address == nil {
		t.Fatal("the manager does not say where it serves metrics")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+string(address[1])+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// turn changes the window, and returns how long the change to a phase takes.
func turn(c *specs.Cluster, sm *v1alpha1.ScheduledMachine, to v1alpha1.Schedule, phase v1alpha1.Phase) time.Duration {
	c.T.Helper()
	begin := time.Now()
	c.SetSchedule(sm, to)
	c.WaitPhase(sm, phase, metav1.ConditionTrue)
	return time.Since(begin).Round(100 * time.Millisecond)
}
