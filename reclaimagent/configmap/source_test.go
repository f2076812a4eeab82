// SPDX-License-Identifier: Apache-2.0

package configmap_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/configmap"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

const (
	javaTOML  = "match_commands = ['java']"
	ideaTOML  = "match_commands = ['idea']"
	brokenTOM = "match_comands = ['java']"
)

// object renders a ConfigMap. An empty text means no data.
func object(name, text string) string {
	data := ""
	if text != "" {
		data = fmt.Sprintf(`,"data":{%q:%q}`, reclaim.ConfigMapKey, text)
	}
	return fmt.Sprintf(`{"metadata":{"name":%q,"resourceVersion":"5"}%s}`, name, data)
}

func mine(text string) string { return object("reclaim-agent-ws", text) }

func list(items ...string) string {
	return `{"metadata":{"resourceVersion":"9"},"items":[` + strings.Join(items, ",") + `]}`
}

func line(kind, object string) string { return `{"type":"` + kind + `","object":` + object + "}\n" }

// api is an API server of functions, in synctest's time.
type api struct {
	mu        sync.Mutex
	list, get func() (string, error)
	// lines are the events of watches. Each receiver is one watch.
	lines    chan string
	watchErr error
	requests []kubeapi.Request
}

func (a *api) Do(ctx context.Context, r kubeapi.Request, into any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r)
	answer := a.list
	if strings.HasSuffix(r.Path, "/reclaim-agent-ws") {
		answer = a.get
	}
	text, err := answer()
	if errors.Is(err, errSilent) {
		<-ctx.Done()
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

func (a *api) Stream(ctx context.Context, r kubeapi.Request) (io.ReadCloser, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r)
	if a.watchErr != nil {
		return nil, a.watchErr
	}
	return &stream{ctx: ctx, lines: a.lines}, nil
}

type stream struct {
	ctx   context.Context //nolint:containedctx // a body ends with its request
	lines chan string
	rest  string
}

func (s *stream) Read(b []byte) (int, error) {
	if s.rest == "" {
		select {
		case <-s.ctx.Done():
			return 0, s.ctx.Err()
		case l := <-s.lines:
			if l == "" {
				return 0, io.EOF
			}
			s.rest = l
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (*stream) Close() error { return nil }

// relist and reget change the server's responses from now on.
func (a *api) relist(f func() (string, error)) { a.mu.Lock(); a.list = f; a.mu.Unlock() }
func (a *api) reget(f func() (string, error))  { a.mu.Lock(); a.get = f; a.mu.Unlock() }

func answer(text string) func() (string, error) { return func() (string, error) { return text, nil } }

// errSilent makes the server accept a request and never respond.
var errSilent = errors.New("no answer")

func silent() (string, error) { return "", errSilent }

func refuse(code int) func() (string, error) {
	return func() (string, error) { return "", &kubeapi.StatusError{Code: code} }
}

// follow runs a Source until do returns. It returns the applied commands, with "-" for a Config without patterns.
func follow(t *testing.T, a *api, do func()) []string {
	t.Helper()
	var got []string
	apply := func(c reclaim.Config) { got = append(got, strings.Join(append(c.MatchCommands, "-"), " ")) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		configmap.New(a, "ws", slog.New(slog.DiscardHandler), apply).Run(ctx)
	}()
	synctest.Wait()
	do()
	synctest.Wait()
	cancel()
	<-done
	return got
}

func TestRun(t *testing.T) {
	cases := map[string]struct {
		reason string
		listed string
		lines  []string
		want   []string
	}{
		"Absent":             {"The Config has no patterns.", list(), nil, []string{"-"}},
		"WithoutData":        {"An empty ConfigMap has no patterns.", list(mine("")), nil, []string{"-"}},
		"There":              {"An existing ConfigMap is applied at once.", list(mine(javaTOML)), nil, []string{"java -"}},
		"SelectorIgnored":    {"The ConfigMap of another Node is ignored.", list(object("reclaim-agent-other", javaTOML)), []string{line("ADDED", object("reclaim-agent-other", ideaTOML))}, []string{"-"}},
		"Added":              {"The ConfigMap may be created later.", list(), []string{line("ADDED", mine(javaTOML))}, []string{"-", "java -"}},
		"Changed":            {"A change counts at once.", list(mine(javaTOML)), []string{line("MODIFIED", mine(ideaTOML))}, []string{"java -", "idea -"}},
		"Echo":               {"The same text is no change.", list(mine(javaTOML)), []string{line("MODIFIED", mine(javaTOML))}, []string{"java -"}},
		"Deleted":            {"The Config has no patterns any more.", list(mine(javaTOML)), []string{line("DELETED", mine(javaTOML))}, []string{"java -", "-"}},
		"ValidThenMalformed": {"The last valid Config stays.", list(mine(javaTOML)), []string{line("MODIFIED", mine(brokenTOM))}, []string{"java -"}},
		"MalformedFirst":     {"No Config is applied before the first valid one.", list(mine(brokenTOM)), nil, nil},
		"MalformedDeleted":   {"A deletion applies a Config without patterns, whatever the text was.", list(mine(javaTOML)), []string{line("MODIFIED", mine(brokenTOM)), line("DELETED", mine(brokenTOM))}, []string{"java -", "-"}},
		"Bookmark":           {"A bookmark changes nothing.", list(mine(javaTOML)), []string{line("BOOKMARK", `{"metadata":{"resourceVersion":"12"}}`)}, []string{"java -"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{list: answer(tc.listed), lines: make(chan string)}
				got := follow(t, a, func() {
					for _, l := range tc.lines {
						a.lines <- l
						synctest.Wait()
					}
				})
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\napplied: -want, +got:\n%s", tc.reason, diff)
				}
				if got := a.requests[0].Query.Get("fieldSelector"); got != "metadata.name=reclaim-agent-ws" {
					t.Errorf("The list is for %q, want the one ConfigMap", got)
				}
			})
		})
	}
}

func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/configmap_event.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Event string
		Armed any
	}
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	play := map[string][]string{
		"absent":               {list()},
		"applied without data": {list(mine(""))},
		"valid then malformed": {list(mine(javaTOML)), line("MODIFIED", mine(brokenTOM))},
		"malformed first":      {list(mine(brokenTOM))},
		"deleted":              {list(mine(javaTOML)), line("DELETED", mine(javaTOML))},
	}
	for _, v := range vectors {
		t.Run(v.Event, func(t *testing.T) {
			steps, ok := play[v.Event]
			if !ok {
				t.Fatalf("the test does not know the event %q", v.Event)
			}
			synctest.Test(t, func(t *testing.T) {
				a := &api{list: answer(steps[0]), lines: make(chan string)}
				got := follow(t, a, func() {
					for _, l := range steps[1:] {
						a.lines <- l
					}
				})
				armed := len(got) > 0 && got[len(got)-1] != "-"
				if want := v.Armed == "previous config kept"; armed != want {
					t.Errorf("armed %v, want %v: %v", armed, want, got)
				}
			})
		})
	}
}

func TestRunRetries(t *testing.T) {
	gone := line("ERROR", `{"kind":"Status","code":410,"message":"too old"}`)
	cases := map[string]struct {
		reason string
		a      *api
		change func(a *api)
		within time.Duration
		want   []string
	}{
		"WatchEnds": {
			reason: "Servers end watches. A list finds changes in between.",
			a:      &api{list: answer(list(mine(javaTOML)))},
			change: func(a *api) { a.relist(answer(list(mine(ideaTOML)))); a.lines <- "" },
			within: time.Second, want: []string{"java -", "idea -"},
		},
		"TooOld": {
			reason: "After 410 the agent lists again.",
			a:      &api{list: answer(list(mine(javaTOML)))},
			change: func(a *api) { a.relist(answer(list(mine(ideaTOML)))); a.lines <- gone },
			within: time.Second, want: []string{"java -", "idea -"},
		},
		"ServerAway": {
			reason: "The last Config stays until the server is back.",
			a:      &api{list: answer(list(mine(javaTOML)))},
			change: func(a *api) {
				a.relist(func() (string, error) { return "", errors.New("connection refused") })
				a.lines <- ""
				time.Sleep(time.Hour)
				a.relist(answer(list(mine(ideaTOML))))
			},
			within: 15 * time.Second, want: []string{"java -", "idea -"},
		},
		"WatchHangs": {
			reason: "A watch ends after a while: otherwise a broken one would hide later changes.",
			a:      &api{list: answer(list(mine(javaTOML)))},
			change: func(a *api) { a.relist(answer(list(mine(ideaTOML)))) },
			within: 11 * time.Minute, want: []string{"java -", "idea -"},
		},
		"WatchForbidden": {
			reason: "Without the right to watch, the agent lists at an interval.",
			a:      &api{list: answer(list(mine(javaTOML))), watchErr: &kubeapi.StatusError{Code: 403}},
			change: func(a *api) { a.relist(answer(list(mine(ideaTOML)))) },
			within: 8 * time.Second, want: []string{"java -", "idea -"},
		},
		"ListForbidden": {
			reason: "Without the right to list, the agent reads at an interval.",
			a:      &api{list: refuse(403), get: answer(mine(javaTOML))},
			change: func(a *api) { a.reget(refuse(404)) },
			within: 8 * time.Second, want: []string{"java -", "-"},
		},
		"AllForbidden": {
			reason: "A rejected read is not a Config without patterns.",
			a:      &api{list: refuse(403), get: refuse(403)},
			change: func(a *api) { a.relist(answer(list(mine(javaTOML)))) },
			within: 8 * time.Second, want: []string{"java -"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tc.a.lines = make(chan string)
				got := follow(t, tc.a, func() { tc.change(tc.a); time.Sleep(tc.within) })
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\napplied: -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

func TestRequestRateToAFailingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{list: answer(list()), lines: make(chan string), watchErr: errors.New("reset")}
		follow(t, a, func() { time.Sleep(time.Hour) })
		if n := len(a.requests); n > 2000 {
			t.Errorf("%d requests in an hour to a server that ends every watch", n)
		}
		a = &api{list: func() (string, error) { return "", errors.New("refused") }}
		follow(t, a, func() { time.Sleep(time.Hour) })
		if n := len(a.requests); n < 200 || n > 800 {
			t.Errorf("%d requests in an hour to a server that is away, want one every 5 to 15 seconds", n)
		}
	})
}

func TestGet(t *testing.T) {
	cases := map[string]struct {
		reason string
		get    func() (string, error)
		want   []string
		err    bool
	}{
		"There":     {"Read once.", answer(mine(javaTOML)), []string{"java"}, false},
		"Absent":    {"Inert.", refuse(404), nil, false},
		"Malformed": {"An error, as nothing was good before.", answer(mine(brokenTOM)), nil, true},
		"Forbidden": {"An error.", refuse(403), nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := configmap.New(&api{get: tc.get}, "ws", slog.New(slog.DiscardHandler), nil)
			got, err := s.Get(t.Context())
			if diff := cmp.Diff(tc.want, got.MatchCommands); diff != "" || (err != nil) != tc.err {
				t.Errorf("%s\nGet(), error %v: -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

// TestRequestsTimeOut: the server accepts a request and never responds. The agent must send the next request,
// which may succeed.
func TestRequestsTimeOut(t *testing.T) {
	cases := map[string]struct {
		reason    string
		list, get func() (string, error)
	}{
		"List": {"It is listed again.", silent, nil},
		"Read": {"Where it may not be listed, it is read again.", refuse(403), silent},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{list: tc.list, get: tc.get}
				follow(t, a, func() { time.Sleep(time.Minute) })
				if n := len(a.requests); n < 4 {
					t.Errorf("%s\n%d requests in a minute, want one every 10 to 20 seconds", tc.reason, n)
				}
				a = &api{list: tc.list, get: tc.get}
				s := configmap.New(a, "ws", slog.New(slog.DiscardHandler), nil)
				began := time.Now()
				if tc.get != nil {
					if _, err := s.Get(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 10*time.Second {
						t.Errorf("Get() = %v after %v", err, time.Since(began))
					}
				}
			})
		})
	}
}
