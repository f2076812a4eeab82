// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

var update = flag.Bool("update", false, "write the output of the commands into the documentation")

// block is a fenced block of a page: its language and its text.
var block = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// TestDocs runs the user documentation. Every YAML block becomes the file that its first line names. Every command in a
// console block must print the text below it. The clock stands still.
func TestDocs(t *testing.T) {
	for _, page := range []string{"schedules.md", "kubectl-plugin.md", "owners.md"} {
		t.Run(page, func(t *testing.T) { testPage(t, filepath.Join("..", "..", "docs", page)) })
	}
}

func testPage(t *testing.T, path string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	path, err = filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", strings.TrimPrefix(farm(t), "--kubeconfig="))
	t.Chdir(t.TempDir())
	if err := os.WriteFile("audit.jsonl", []byte(auditLog()), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := 0
	s := shell{root: root}
	want := block.ReplaceAllStringFunc(string(page), func(text string) string {
		m := block.FindStringSubmatch(text)
		switch m[1] {
		case "yaml":
			writeYAML(t, m[2])
			return text
		case "console":
			return "```console\n" + s.session(t, m[2], &commands) + "```"
		default:
			t.Errorf("a %s block, which nobody runs:\n%s", m[1], m[2])
			return text
		}
	})
	if commands == 0 {
		t.Error("no command on this page")
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, string(page)); diff != "" {
		t.Errorf("-what the commands print, +what the page says (rewrite it with -args -update):\n%s", diff)
	}
}

func writeYAML(t *testing.T, text string) {
	t.Helper()
	first, _, _ := strings.Cut(text, "\n")
	name, ok := strings.CutPrefix(first, "# ")
	if !ok || !filepath.IsLocal(name) {
		t.Fatalf("YAML without a file name in its first line:\n%s", text)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// shell runs the few commands that the pages use.
type shell struct {
	root string // of the repository
	code int    // of the last command
}

// session returns a console block with the actual output of its commands.
func (s *shell) session(t *testing.T, text string, commands *int) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			*commands++
			b.WriteString(line)
			b.WriteString(s.run(t, strings.TrimSuffix(command, "\n")))
		}
	}
	return b.String()
}

func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	args, ours := strings.CutPrefix(command, "kubectl 5spot ")
	switch {
	case ours:
		got := run("", strings.Fields(args)...)
		s.code = got.Code
		// The Go release and the platform differ between test machines.
		return strings.Replace(got.Out+got.Err, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH, "go1.26 linux/amd64", 1)
	case command == "echo $?":
		return fmt.Sprintln(s.code)
	case strings.HasPrefix(command, "go build -o bin/"):
		args := strings.Fields(strings.Replace(command, "bin/", t.TempDir()+"/", 1))
		build := exec.Command(args[0], args[1:]...)
		build.Dir = s.root
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return ""
	default:
		t.Errorf("nobody runs: %s", command)
		return ""
	}
}

// farm is the cluster of the documentation.
func farm(t *testing.T) string {
	t.Helper()
	rack := machine("rack-12", leaving, func(m *v1alpha1.ScheduledMachine) {
		m.Spec.Schedule.Timezone, m.Status.NextCleanup, m.Status.NextActivation = "Europe/Zurich", in(24*time.Hour), in(15*time.Hour)
		m.Status.NodeRef.Name = "rack-12"
	})
	spare := machine("spare", givenBack(
		recorded(v1alpha1.PersonsRequest("spare", "deadline", now.Add(-2*24*time.Hour)), nil),
		recorded(v1alpha1.ReclaimRecord{Node: "spare", NodeUID: "u1", Reason: "process-match: java", RequestedAt: "2025-01-15T14:00:00Z"}, holdReport),
	))
	next := machine("rack-13", kept(departurecap.BlastRadiusCap, 4*time.Minute))
	list := v1alpha1.ScheduledMachineList{Items: []v1alpha1.ScheduledMachine{*machine("office"), *rack, *next, *spare}}
	list.APIVersion, list.Kind = v1alpha1.GroupVersion.String(), "ScheduledMachineList"
	desk := machine("desk", deletedMachine, func(m *v1alpha1.ScheduledMachine) { m.ManagedFields = nil })
	server := api{manager: confirmPause, objects: map[string]any{
		path("desk"): desk, strings.Replace(officeMachine, "office", "desk", 1): runningMachine(func(m *clusterv1.Machine) { m.Name = "desk-machine" }),
		strings.TrimSuffix(path(""), "/"): list, path("office"): machine("office"), path("rack-12"): rack, path("rack-13"): next, path("spare"): spare,
		clusterPath("farm", "prod"):                               map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": "farm", "name": "prod"}},
		"/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/machines": metadata(leavingMachine("rack-12", v1alpha1.WindowClosed, 5*time.Minute)),
	}}
	return server.serve(t)
}
