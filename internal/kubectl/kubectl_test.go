// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
)

// now is a Wednesday in January, 12:00 in New York.
var now = time.Date(2025, 1, 15, 17, 0, 0, 0, time.UTC)

// result is what a command left behind.
type result struct {
	Out, Err string
	Code     int
}

// run runs the command as main does.
func run(stdin string, args ...string) result {
	var out, errs strings.Builder
	cmd := kubectl.New(kubectl.Options{
		In:      strings.NewReader(stdin),
		Out:     &out,
		Err:     &errs,
		Now:     func() time.Time { return now.Add(300 * time.Millisecond) },
		Version: "v1.2.3",
	})
	cmd.SetArgs(args)
	err := cmd.Execute()
	if err != nil {
		kubectl.Report(&errs, err)
	}
	return result{Out: out.String(), Err: errs.String(), Code: kubectl.ExitCode(err)}
}

// cluster serves objects by path, and returns the flag that leads there.
func cluster(t *testing.T, objects map[string]any) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, ok := objects[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			object = metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status:   metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
				Message: `scheduledmachines.5spot.finos.org "` + filepath.Base(r.URL.Path) + `" not found`,
			}
		}
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return "--kubeconfig=" + kubeconfig(t, server.URL)
}

func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	return file(t, "kubeconfig", `apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "`+url+`"}}]
contexts: [{name: test, context: {cluster: test, namespace: farm}}]
`)
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestVersion(t *testing.T) {
	t.Parallel()
	got := run("", "version")
	if got.Code != 0 || !strings.HasPrefix(got.Out, "kubectl-5spot v1.2.3\ngo1.") || !strings.Contains(got.Out, "\ntime zones 20") {
		t.Errorf("version: %+v", got)
	}
}

func TestHelpShowsOnlyTheFlagsThatPeopleUse(t *testing.T) {
	t.Parallel()
	got := run("", "status", "--help")
	for _, want := range []string{"kubectl 5spot status", "--namespace", "--kubeconfig", "--context", "--all-namespaces"} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("help lacks %s:\n%s", want, got.Out)
		}
	}
	for _, hidden := range []string{"--token", "--client-key", "--insecure"} {
		if strings.Contains(got.Out, hidden) {
			t.Errorf("help shows %s:\n%s", hidden, got.Out)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"NothingToPlan":   {"It could mean a file or a cluster.", []string{"plan"}, "error: give either -f FILE or the NAME of a ScheduledMachine in the cluster\n"},
		"FileAndName":     {"One of them would be ignored.", []string{"plan", "-f", "x", "y"}, "error: give either -f FILE or the NAME of a ScheduledMachine in the cluster\n"},
		"NameEverywhere":  {"A name is not one machine there.", []string{"status", "x", "-A"}, "error: a NAME is in one namespace: give either NAME or --all-namespaces\n"},
		"UnknownCommand":  {"A typing error.", []string{"plna"}, "error: unknown command \"plna\" for \"kubectl 5spot\"\n"},
		"UnknownFlag":     {"Another.", []string{"plan", "--four", "7d"}, "error: unknown flag: --four\n"},
		"UnknownOutput":   {"yaml is what people try next.", []string{"status", "-o", "yaml"}, "error: invalid argument \"yaml\" for \"-o, --output\" flag: write text or json\n"},
		"TooLong":         {"Nobody reads more.", []string{"plan", "x", "--for", "367d"}, "error: invalid argument \"367d\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"TooLongInWeeks":  {"The bound is the same in every unit.", []string{"plan", "x", "--for", "53w"}, "error: invalid argument \"53w\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"Overflowing":     {"A large number must not come out small.", []string{"plan", "x", "--for", "4294967295w"}, "error: invalid argument \"4294967295w\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"Backwards":       {"A plan looks ahead.", []string{"plan", "x", "--for", "-1d"}, "error: invalid argument \"-1d\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"NoUnit":          {"Seven what?", []string{"plan", "x", "--for", "7"}, "error: invalid argument \"7\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"NoLength":        {"Empty is not zero.", []string{"plan", "x", "--for", ""}, "error: invalid argument \"\" for \"--for\" flag: write a whole number and w, d, h, m or s, such as 7d, at most 366d\n"},
		"TimeWithoutZone": {"Whose nine o'clock?", []string{"plan", "x", "--at", "2025-01-15T09:00:00"}, "error: invalid argument \"2025-01-15T09:00:00\" for \"--at\" flag: write RFC 3339 with a zone, such as 2025-01-15T09:00:00Z or 2025-01-15T09:00:00+01:00\n"},
		"VersionOfWhat":   {"It takes no argument.", []string{"version", "x"}, "error: unknown command \"x\" for \"kubectl 5spot version\"\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(result{Err: tc.want, Code: 2}, run("", tc.args...)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClusterErrors(t *testing.T) {
	t.Parallel()
	empty := cluster(t, nil)
	cases := map[string]struct {
		reason string
		args   []string
		want   string // in the error
	}{
		"NoSuchMachine":   {"The machine may come.", []string{"plan", "ghost", empty}, `error: reading ghost: scheduledmachines.5spot.finos.org "ghost" not found`},
		"EveryMissingOne": {"One run tells them all.", []string{"status", "a", "b", empty}, "error: reading b: "},
		"NoSuchAPI":       {"5-Spot may be installed later.", []string{"status", empty}, "error: listing scheduledmachines: "},
		"NoKubeconfig":    {"It may be mounted later.", []string{"status", "--kubeconfig=/does/not/exist"}, "error: reading kubeconfig: "},
		"NoSuchContext":   {"It is in the file, not in the command.", []string{"status", empty, "--context=mars"}, "error: reading kubeconfig: "},
		"Unreachable":     {"The network may return.", []string{"status", "--kubeconfig=" + kubeconfig(t, "http://127.0.0.1:1")}, "error: listing scheduledmachines: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run("", tc.args...)
			if got.Code != 1 || got.Out != "" || !strings.Contains(got.Err, tc.want) {
				t.Errorf("%s\ngot %+v, want code 1 and %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestExitCodeOfAJoinedErrorIsTheClusters(t *testing.T) {
	t.Parallel()
	if got := kubectl.ExitCode(errors.Join(errors.New("a"), errors.New("b"))); got != 2 {
		t.Errorf("ExitCode(...): %d, want 2", got)
	}
	if got := kubectl.ExitCode(nil); got != 0 {
		t.Errorf("ExitCode(nil): %d", got)
	}
}

func TestReportDoesNotControlTheTerminal(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	kubectl.Report(&b, errors.New("a\x1b[2Jb\nc\u009bd\r"))
	if diff := cmp.Diff("error: a\ufffd[2Jb\nerror: c\ufffdd\ufffd\n", b.String()); diff != "" {
		t.Errorf("Report(...): -want, +got:\n%s", diff)
	}
}
