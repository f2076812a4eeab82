// SPDX-License-Identifier: Apache-2.0

package cuts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// patience bounds one step, on a busy machine.
const patience = 2 * time.Minute

// An edit replaces text that occurs once in a source file.
type edit struct{ file, text, by string }

// leave requests departures, and waits for them.
type leave func(c *specs.Cluster, all []*v1alpha1.ScheduledMachine)

func windowEnds(c *specs.Cluster, all []*v1alpha1.ScheduledMachine) {
	for _, sm := range all {
		c.SetSchedule(sm, specs.Closed())
	}
	for _, sm := range all {
		c.WaitPhase(sm, v1alpha1.PhaseInactive, metav1.ConditionTrue)
	}
}

// ownerAsks makes an owner's request, and waits until it is removed from the ScheduledMachine.
func ownerAsks(c *specs.Cluster, all []*v1alpha1.ScheduledMachine) {
	c.AskBack(c.Node(all[0]), "java")
	c.WaitPhase(all[0], v1alpha1.PhaseDisabled, metav1.ConditionTrue)
}

// machinesAreDeleted deletes all Machines except the first, and waits until three of them have started to leave, 10 s
// apart: two may start before and after the 11 s that the judge looks at. The first one's window ends before that: when it
// has left, the manager has warmed up.
func machinesAreDeleted(c *specs.Cluster, all []*v1alpha1.ScheduledMachine) {
	windowEnds(c, all[:1])
	for _, sm := range all[1:] {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}}
		if err := c.Management.Delete(c.T.Context(), m); err != nil {
			c.T.Fatalf("%v", err)
		}
	}
	started := map[types.UID]bool{}
	ctx, cancel := context.WithTimeout(c.T.Context(), patience)
	defer cancel()
	if err := plane.Until(ctx, func(ctx context.Context) error {
		list := &clusterv1.MachineList{}
		if err := c.Management.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if d, _ := v1alpha1.ParseDeparture(list.Items[i].Annotations[v1alpha1.DepartureAnnotation]); !d.Since.IsZero() {
				started[list.Items[i].UID] = true
			}
		}
		if len(started) < 3 {
			return fmt.Errorf("%d machines have started to leave", len(started))
		}
		return nil
	}); err != nil {
		c.T.Fatalf("%v", err)
	}
}

func TestTheJudgeFindsTheRailThatWasCut(t *testing.T) {
	cases := map[string]struct {
		reason string
		cut    []edit
		// paused starts the manager's pause once the machine runs.
		paused bool
		// metered is the number of machines in a case about the departure cap. The manager restarts when they run, and
		// then knows their number.
		metered int
		leave   leave
		// broken are the expected broken rules. kept are other rules that must have judged at least one case.
		broken, kept []string
	}{
		"NoneWindow": {
			reason: "What ships keeps every rule.",
			leave:  windowEnds, kept: []string{"steps", "precondition", "lines", "cap"},
		},
		"NoneOwner": {
			reason: "What ships keeps every rule.",
			leave:  ownerAsks, kept: []string{"steps", "emergency", "precondition", "lines"},
		},
		"NoneWipe": {
			reason:  "What ships keeps every rule.",
			metered: 13,
			leave:   machinesAreDeleted, kept: []string{"steps", "lines", "cap", "wipe"},
		},
		"Cap": {
			reason:  "As many leave at once as are to leave.",
			cut:     []edit{{"internal/departurecap/decide.go", "\tif limit <= 0 {\n", "\tif true {\n"}},
			metered: 3,
			leave:   windowEnds, broken: []string{"cap", "fleet"},
		},
		"WipeGuard": {
			reason:  "Nobody confirms that nearly all are to leave.",
			cut:     []edit{{"controllers/departure/rails.go", "\tif !r.WipeGuard || r.Actuate.Suppresses() {\n", "\tif true {\n"}},
			metered: 13,
			leave:   machinesAreDeleted, broken: []string{"wipe"},
		},
		"Record": {
			reason: "Nothing says why a machine leaves.",
			cut: []edit{
				{"internal/actuate/remove.go", "\tchildren.Record(m, d)\n", "\tif len(d.Skips) > 0 {\n\t\tchildren.Record(m, d)\n\t}\n"},
				{"controllers/departure/publish.go", "\t\tchildren.SetDeparture(m, d)\n", "\t\tif d.Since.IsZero() {\n\t\t\tchildren.SetDeparture(m, d)\n\t\t}\n"},
				{"controllers/departure/publish.go", "if state, _ := children.StateOf(admitted, now); state != children.Admitted {", "if false {"},
			},
			leave: windowEnds, broken: []string{"steps"},
		},
		"Order": {
			reason: "The schedule is turned off while the Machine is on its way.",
			cut:    []edit{{"internal/lifecycle/emergency.go", "\t\treturn WaitForRemoval\n", "\t\treturn DisableSchedule\n"}},
			leave:  ownerAsks, broken: []string{"emergency"},
		},
		"UID": {
			reason: "A deletion hits whatever has the name.",
			cut:    []edit{{"internal/actuate/actuate.go", "a.client.Delete(ctx, obj, conditions)", "a.client.Delete(ctx, obj)"}},
			leave:  windowEnds, broken: []string{"precondition"},
		},
		"Line": {
			reason: "Nothing is told of what was done.",
			cut:    []edit{{"internal/actuate/gate.go", "\tg.Log.Write(line)\n", ""}},
			leave:  windowEnds, broken: []string{"lines"},
		},
		"Pause": {
			reason: "A manager that is paused goes on.",
			cut:    []edit{{"internal/actuate/gate.go", "return g.Paused || g.DryRun", "return g.DryRun"}},
			paused: true,
			leave:  windowEnds, broken: []string{"silence"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ruling := live(t, tc.cut, tc.paused, tc.metered, tc.leave)
			var broken []string
			for _, v := range ruling.Breaks {
				t.Log(v)
				broken = append(broken, v.Rule)
			}
			slices.Sort(broken)
			if diff := gocmp.Diff(tc.broken, slices.Compact(broken)); diff != "" {
				t.Errorf("%s\nbroken rules: -want, +got:\n%s", tc.reason, diff)
			}
			for _, rule := range tc.kept {
				if ruling.Judged[rule] == 0 {
					t.Errorf("rule %s had nothing to say", rule)
				}
			}
		})
	}
}

// live runs machines that join and leave under a manager with a cut, and returns the judge's ruling.
func live(t *testing.T, cut []edit, paused bool, metered int, leave leave) *judge.Ruling {
	t.Helper()
	dir := t.TempDir()
	lines := filepath.Join(dir, "audit.jsonl")
	s := start(t, build(t, dir, cut), metered > 0, "--audit-log="+lines)
	c := lab(t, s)
	var all []*v1alpha1.ScheduledMachine
	for i := range max(1, metered) {
		all = append(all, c.Start(c.NewScheduledMachine(fmt.Sprintf("office-%d", i))))
	}
	for _, sm := range all {
		c.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
	rules := append(judge.Default(), judge.Lines(true), judge.Cap(50_000), judge.FleetCap(50_000), judge.Wipe())
	if paused {
		s.Manager.AddArgs("--actuation-paused")
	}
	if paused || metered > 0 {
		must(t, s.Manager.Stop())
		begin := time.Now()
		must(t, s.Manager.Start(within(t)))
		if paused {
			rules = append(rules, judge.Quiet(judge.Silence{From: begin, To: begin.Add(time.Hour)}))
		}
	}
	leave(c, all)
	must(t, s.Manager.Stop())
	ruling, err := s.Ruling([]string{lines}, rules...)
	must(t, err)
	return ruling
}

// build builds the programs with a cut into dir, and returns the folder with the binaries.
func build(t *testing.T, dir string, cut []edit) string {
	t.Helper()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range cut {
		path := filepath.Join(system.Repository(), e.file)
		text, err := os.ReadFile(cmp.Or(overlay.Replace[path], path)) // an earlier edit of the same file
		must(t, err)
		if strings.Count(string(text), e.text) != 1 {
			t.Fatalf("%s has %q %d times: name the rail that is to be cut", e.file, e.text, strings.Count(string(text), e.text))
		}
		edited := filepath.Join(dir, strings.ReplaceAll(e.file, "/", "-"))
		must(t, os.WriteFile(edited, []byte(strings.Replace(string(text), e.text, e.by, 1)), 0o600))
		overlay.Replace[path] = edited
	}
	text, err := json.Marshal(overlay)
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, text, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", file, "-o", dir+"/", "./cmd/manager")
	cmd.Dir = system.Repository()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building without a rail: %v\n%s", err, out)
	}
	return dir
}

// start starts a system that ends with the test.
func start(t *testing.T, bin string, metered bool, args ...string) *system.System {
	t.Helper()
	s, err := system.Start(within(t), system.Options{
		Bin: bin, Metered: metered, ManagerArgs: args, Plane: plane.Options{Management: plane.ClusterOptions{AuditBodies: system.JudgedInManagement}},
	})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the manager:\n%s", s.Manager.LogTail(30))
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// lab is a Cluster of s.
func lab(t *testing.T, s *system.System) *specs.Cluster {
	t.Helper()
	w, err := s.NewWorkload(within(t), plane.WorkloadOptions{
		Namespace: "lab", Name: "lab", ClusterOptions: plane.ClusterOptions{AuditBodies: system.JudgedInWorkload},
	})
	must(t, err)
	must(t, w.EnsureNamespace(within(t), "lab"))
	return &specs.Cluster{
		T: t, Management: s.Management.Client, Workload: w.Client, Namespace: "lab", Patience: patience,
		NewScheduledMachine: func(name string) *v1alpha1.ScheduledMachine {
			return system.ScheduledMachine(w, name, infrav1.PlaneMachineSpec{})
		},
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
