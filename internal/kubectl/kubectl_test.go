// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
)

// now is a Wednesday in January, 12:00 in New York.
var now = time.Date(2025, 1, 15, 17, 0, 0, 0, time.UTC)

// result is the output and the exit code of a command.
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

// cluster serves objects by path, and returns the flag that selects this cluster.
func cluster(t *testing.T, objects map[string]any) string {
	t.Helper()
	return (&api{objects: objects}).serve(t)
}

// path returns the API path of a ScheduledMachine.
func path(name string) string {
	return "/apis/5spot.finos.org/v1alpha1/namespaces/farm/scheduledmachines/" + name
}

// api is an API server with only the calls that these commands make.
type api struct {
	objects map[string]any
	// beforePatch, if set, writes before the next patch arrives.
	beforePatch func(*api)
	// manager, if set, is called after each accepted patch of an object.
	manager func(a *api, path string)
	// fault, if set, returns which writes fail. A lost response is of a write that the API server accepted.
	fault func() fault
	// watchEvents is the sequence of objects that a watch sends.
	watchEvents []*v1alpha1.ScheduledMachine
	// endWatch ends a watch after the watchEvents; then watched, if set, is called.
	endWatch bool
	watched  func()
	// noResponse blocks every read after a patch until the client cancels it.
	noResponse bool
	// failReads is the number of reads that fail next.
	failReads int
	// patches are the accepted bodies, with their senders.
	patches []string

	mu sync.Mutex
}

func (a *api) serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if a.noResponse && r.Method == http.MethodGet && len(a.patches) > 0 {
			<-r.Context().Done()
			return
		}
		if r.URL.Query().Get("watch") == "true" {
			a.watch(t, w, r)
			return
		}
		code, object := http.StatusOK, a.objects[r.URL.Path]
		wrong := none
		if a.fault != nil && r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
			wrong = a.fault()
		}
		switch {
		case a.failReads > 0 && r.Method == http.MethodGet:
			a.failReads--
			object = refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, "fault")
		case wrong == refused:
			object = refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, "fault")
		case r.Method == http.MethodPost:
			code, object = a.post(t, r)
		case object == nil:
			object = refusal(http.StatusNotFound, metav1.StatusReasonNotFound,
				`scheduledmachines.5spot.finos.org "`+filepath.Base(r.URL.Path)+`" not found`)
		case a.objects["DELETE "+r.URL.Path] != nil && r.Method == http.MethodDelete:
			object = a.objects["DELETE "+r.URL.Path]
		case r.Method == http.MethodDelete:
			a.patches = append(a.patches, "delete "+string(precondition(t, r)))
			delete(a.objects, r.URL.Path)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
		case r.Method == http.MethodPatch:
			code, object = a.patch(t, r)
		}
		if wrong == lost {
			object = refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError, "fault")
		}
		if status, refused := object.(metav1.Status); refused && status.Code != 0 {
			code = int(status.Code)
		}
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return "--kubeconfig=" + kubeconfig(t, server.URL)
}

// fault is what happens to a write.
type fault int

const (
	none fault = iota
	refused
	lost
)

// post creates an object, unless its name is taken or the test refuses it.
func (a *api) post(t *testing.T, r *http.Request) (int, any) {
	t.Helper()
	if answer := a.objects["POST "+r.URL.Path]; answer != nil {
		return 0, answer
	}
	var object map[string]any
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		t.Error(err)
	}
	name, _, _ := unstructured.NestedString(object, "metadata", "name")
	path := r.URL.Path + "/" + name
	if a.objects[path] != nil {
		return http.StatusConflict, refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists, `"`+name+`" already exists`)
	}
	if r.URL.Query().Get("dryRun") == "" {
		a.patches = append(a.patches, r.URL.Query().Get("fieldManager")+": create "+name)
		a.objects[path] = object
		a.touch(t, path)
	}
	return http.StatusCreated, object
}

func refusal(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
}

// precondition returns the UID precondition of a deletion.
func precondition(t *testing.T, r *http.Request) types.UID {
	t.Helper()
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil {
		t.Fatalf("%v: %v", err, options)
	}
	return *options.Preconditions.UID
}

// patch applies a merge patch, and requires the newest version, as the API does.
func (a *api) patch(t *testing.T, r *http.Request) (int, any) {
	t.Helper()
	if beforePatch := a.beforePatch; beforePatch != nil {
		a.beforePatch = nil
		beforePatch(a)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var change, object map[string]any
	before, err := json.Marshal(a.objects[r.URL.Path])
	if err := errors.Join(err, json.Unmarshal(body, &change), json.Unmarshal(before, &object)); err != nil {
		t.Error(err)
	}
	_, managers, _ := unstructured.NestedSlice(change, "metadata", "managedFields")
	lockless := managers || strings.Contains(r.URL.Path, "/clusters/")
	if sent, _, _ := unstructured.NestedString(change, "metadata", "resourceVersion"); sent != version(object) && !lockless {
		return http.StatusConflict, refusal(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
	}
	if r.URL.Query().Get("dryRun") != "" {
		return http.StatusOK, object
	}
	unstructured.RemoveNestedField(change, "metadata", "resourceVersion")
	if metadata, ok := change["metadata"].(map[string]any); ok && len(metadata) == 0 {
		delete(change, "metadata")
	}
	a.patches = append(a.patches, fmt.Sprintf("%s: %v", r.URL.Query().Get("fieldManager"), change))
	merge(object, change)
	a.objects[r.URL.Path] = object
	a.touch(t, r.URL.Path)
	changed := a.objects[r.URL.Path]
	if finalizers, _, _ := unstructured.NestedSlice(object, "metadata", "finalizers"); len(finalizers) == 0 && object["metadata"].(map[string]any)["deletionTimestamp"] != nil {
		delete(a.objects, r.URL.Path)
	} else if a.manager != nil {
		a.manager(a, r.URL.Path)
	}
	return http.StatusOK, changed
}

// touch gives an object a new version.
func (a *api) touch(t *testing.T, path string) {
	t.Helper()
	var object map[string]any
	before, err := json.Marshal(a.objects[path])
	if err := errors.Join(err, json.Unmarshal(before, &object)); err != nil {
		t.Error(err)
	}
	if err := unstructured.SetNestedField(object, version(object)+"1", "metadata", "resourceVersion"); err != nil {
		t.Error(err)
	}
	a.objects[path] = object
}

func version(object map[string]any) string {
	v, _, _ := unstructured.NestedString(object, "metadata", "resourceVersion")
	return v
}

func merge(into, change map[string]any) {
	for key, value := range change {
		below, isMap := value.(map[string]any)
		if value == nil {
			delete(into, key)
		} else if inner, ok := into[key].(map[string]any); ok && isMap {
			merge(inner, below)
		} else {
			into[key] = value
		}
	}
}

// watch sends the watchEvents, then stays open until the client cancels it.
func (a *api) watch(t *testing.T, w http.ResponseWriter, r *http.Request) {
	t.Helper()
	if got := r.URL.Query().Get("fieldSelector"); !strings.HasPrefix(got, "metadata.name=") {
		t.Errorf("a watch of %q, want one object", got)
	}
	for _, m := range a.watchEvents {
		if err := json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": m}); err != nil {
			t.Error(err)
		}
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Error(err)
	}
	if !a.endWatch {
		<-r.Context().Done()
	}
	if a.watched != nil {
		a.watched()
	}
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
		"UnknownCommand":  {"A typing error.", []string{"plna"}, "error: unknown command \"plna\" for \"kubectl 5spot\"; did you mean plan?\n"},
		"UnlikeAnything":  {"There is nothing to suggest.", []string{"frobnicate"}, "error: unknown command \"frobnicate\" for \"kubectl 5spot\"\n"},
		"Transposed":      {"The commonest mistake.", []string{"statsu"}, "error: unknown command \"statsu\" for \"kubectl 5spot\"; did you mean status?\n"},
		"UnknownFlag":     {"Another.", []string{"plan", "--four", "7d"}, "error: unknown flag: --four\n"},
		"UnknownOutput":   {"yaml is what people try next.", []string{"status", "-o", "yaml"}, "error: invalid argument \"yaml\" for \"-o, --output\" flag: write text, wide or json\n"},
		"TooLong":         {"A plan is at most a year long.", []string{"plan", "x", "--for", "367d"}, "error: invalid argument \"367d\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"TooLongInWeeks":  {"The bound is the same in every unit.", []string{"plan", "x", "--for", "53w"}, "error: invalid argument \"53w\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"Overflowing":     {"A large number must not come out small.", []string{"plan", "x", "--for", "4294967295w"}, "error: invalid argument \"4294967295w\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"Backwards":       {"A plan looks ahead.", []string{"plan", "x", "--for", "-1d"}, "error: invalid argument \"-1d\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"NoUnit":          {"Seven what?", []string{"plan", "x", "--for", "7"}, "error: invalid argument \"7\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"NoLength":        {"Empty is not zero.", []string{"plan", "x", "--for", ""}, "error: invalid argument \"\" for \"--for\" flag: write a whole number followed by w, d, h, m or s, such as 7d, at most 366d\n"},
		"TimeWithoutZone": {"Whose nine o'clock?", []string{"plan", "x", "--at", "2025-01-15T09:00:00"}, "error: invalid argument \"2025-01-15T09:00:00\" for \"--at\" flag: write RFC 3339 with a zone, such as 2025-01-15T09:00:00Z or 2025-01-15T09:00:00+01:00\n"},
		"GiveBackWhat":    {"A machine that is taken away should be meant.", []string{"give-back"}, "error: give the NAME of one ScheduledMachine\n"},
		"GiveBackTwo":     {"One at a time.", []string{"give-back", "x", "y"}, "error: give the NAME of one ScheduledMachine\n"},
		"LongReason":      {"What is remembered is bounded; half a reason is none.", []string{"give-back", "x", "--reason", strings.Repeat("x", 238)}, "error: --reason: write one line of at most 237 printable characters, without trailing spaces\n"},
		"ReasonOfLines":   {"It becomes part of events.", []string{"give-back", "x", "--reason", "a\nb"}, "error: --reason: write one line of at most 237 printable characters, without trailing spaces\n"},
		"ResumeWhat":      {"A machine that joins should be meant, too.", []string{"resume"}, "error: give the NAME of one ScheduledMachine\n"},
		"WhyWhat":         {"It explains one.", []string{"why"}, "error: give the NAME of one ScheduledMachine\n"},
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
		"EveryMissingOne": {"One run reports every missing machine.", []string{"status", "a", "b", empty}, "error: reading b: "},
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
