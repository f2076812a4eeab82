// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

const (
	stateHeader = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"
	statHeader  = "# pxname,svname,qcur,scur,bck,\n"
)

// webA is the membership in most tests.
var webA = balancer.Membership{Pool: "web", Member: "a", Port: 80, Address: "192.0.2.1", Persistent: true}

// fake is a process whose servers are given by lines such as "web a 192.0.2.1 2 0 1 80 | 0 7 0". These are columns of
// the state, and of the statistics.
type fake struct {
	// answers overrides the answers to commands.
	answers map[string]string

	mu    sync.Mutex
	lines []string
	sets  []string
}

func (f *fake) answer(command string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a, found := f.answers[command]; found {
		return a
	}
	state, stat := stateHeader, statHeader
	for i, line := range f.lines {
		left, right, _ := strings.Cut(line, " | ")
		s := strings.Fields(left)
		state += fmt.Sprintf("1 %s %d %s\n", s[0], i+1, strings.Join(s[1:], " "))
		stat += strings.Join(append(s[:2], strings.Fields(right)...), ",") + ",\n"
	}
	switch {
	case command == "show servers state":
		return state + "\n"
	case command == "show stat -1 4 -1":
		return stat + "\n"
	case strings.HasPrefix(command, "set server "):
		f.sets = append(f.sets, strings.TrimPrefix(command, "set server "))
		return "\n"
	default:
		return "Unknown command\n\n"
	}
}

// listen serves a socket until the test ends, and returns its endpoint.
func listen(t *testing.T, serve func(net.Conn, string)) string {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				b := make([]byte, 4096)
				n, _ := conn.Read(b)
				serve(conn, strings.TrimSuffix(string(b[:n]), "\n"))
			})
		}
	})
	return "unix://" + l.Addr().String()
}

// driver returns a Driver for fakes.
func driver(t *testing.T, backends []string, fakes ...*fake) *Driver {
	t.Helper()
	spec := expv1.HAProxyBalancer{Backends: backends}
	for _, f := range fakes {
		spec.Endpoints = append(spec.Endpoints, listen(t, func(conn net.Conn, command string) {
			_, _ = io.WriteString(conn, f.answer(command))
		}))
	}
	d, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		endpoint, backend string
		fails             bool
	}{
		{endpoint: "tcp://192.0.2.1:9999", backend: "web"},
		{endpoint: "tcp://[2001:db8::1]:9999", backend: "web-1.a:b_c"},
		{endpoint: "unix:///run/haproxy/admin.sock", backend: "0"},
		{endpoint: "", backend: "web", fails: true},
		{endpoint: "192.0.2.1:9999", backend: "web", fails: true},
		{endpoint: "http://192.0.2.1:9999", backend: "web", fails: true},
		{endpoint: "tcp://192.0.2.1", backend: "web", fails: true},
		{endpoint: "tcp://:9999", backend: "web", fails: true},
		{endpoint: "tcp://192.0.2.1:0", backend: "web", fails: true},
		{endpoint: "tcp://192.0.2.1:65536", backend: "web", fails: true},
		{endpoint: "unix://run/haproxy.sock", backend: "web", fails: true},
		{endpoint: "unix:///s", backend: "", fails: true},
		{endpoint: "unix:///s", backend: "web api", fails: true},
		{endpoint: "unix:///s", backend: "web;shutdown", fails: true},
		{endpoint: "unix:///s", backend: "web\nshow", fails: true},
		{endpoint: "unix:///s", backend: "web/a", fails: true},
		{endpoint: "unix:///s", backend: "#3", fails: true},
		{endpoint: "unix:///s", backend: "b\u00fcro", fails: true},
	} {
		_, err := New(expv1.HAProxyBalancer{Endpoints: []string{c.endpoint}, Backends: []string{c.backend}})
		if (err != nil) != c.fails {
			t.Errorf("New(%q, %q) = %v, want an error: %t", c.endpoint, c.backend, err, c.fails)
		}
	}
	for endpoint, want := range map[string]string{
		"tcp://192.0.2.1:99999": "spec.haproxy.endpoints: port 99999 is not from 1 to 65535",
		"192.0.2.1:9999":        `spec.haproxy.endpoints: "192.0.2.1:9999" must be like tcp://192.0.2.1:9999 or unix:///run/haproxy/admin.sock`,
	} {
		if _, err := New(expv1.HAProxyBalancer{Endpoints: []string{endpoint}}); fmt.Sprint(err) != want {
			t.Errorf("New(%q) = %v, want %s", endpoint, err, want)
		}
	}
	if _, err := New(expv1.HAProxyBalancer{}); err == nil {
		t.Error("New without endpoints is no error")
	}
}

func TestDiscover(t *testing.T) {
	first := &fake{lines: []string{
		"web b 192.0.2.1 2 0 1 8080 | 0 0 0",
		"web a 192.0.2.1 2 0 1 80 | 0 0 0",
		"web other 192.0.2.11 2 0 1 80 | 0 0 0",
		"web named - 0 32 1 80 | 0 0 0",
		"api six 2001:db8::1 0 1 1 443 | 0 0 0",
		"api mapped ::ffff:192.0.2.1 2 0 1 0 | 0 0 0",
	}}
	second := &fake{lines: []string{
		"web a 192.0.2.1 2 0 1 80 | 0 0 0",
		"api only-here 192.0.2.1 2 0 1 80 | 0 0 0",
	}}
	node := balancer.Node{Name: "n", Addresses: []string{"n.example", "192.0.2.1", "2001:DB8:0::1"}}
	api := []balancer.Membership{
		{Pool: "api", Member: "mapped", Address: "192.0.2.1", Persistent: true},
		{Pool: "api", Member: "only-here", Port: 80, Address: "192.0.2.1", Persistent: true},
		{Pool: "api", Member: "six", Port: 443, Address: "2001:db8::1", Persistent: true},
	}
	web := []balancer.Membership{
		{Pool: "web", Member: "a", Port: 80, Address: "192.0.2.1", Persistent: true},
		{Pool: "web", Member: "b", Port: 8080, Address: "192.0.2.1", Persistent: true},
	}
	for _, c := range []struct {
		backends []string
		want     []balancer.Membership
	}{
		{nil, slices.Concat(api, web)},
		{[]string{"api"}, api},
		{[]string{"web", "api"}, slices.Concat(api, web)},
	} {
		got, err := driver(t, c.backends, first, second).Discover(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("backends %v (-want +got):\n%s", c.backends, diff)
		}
	}

	d := driver(t, []string{"web", "no-such"}, first)
	if _, err := d.Discover(t.Context(), node); err == nil || !strings.Contains(err.Error(), `"no-such"`) {
		t.Errorf("a backend that is not there: %v, want an error with its name", err)
	}
	if _, err := driver(t, nil, first).Discover(t.Context(), balancer.Node{Name: "n", Addresses: []string{"n.example"}}); err == nil {
		t.Error("a Node without IP addresses is no error")
	}
	if got, err := driver(t, nil, first).Discover(t.Context(), balancer.Node{Addresses: []string{"192.0.2.99"}}); err != nil || len(got) != 0 {
		t.Errorf("a Node that is no member: %v, %v", got, err)
	}
}

// TestStatus: a server "a" of one or more processes, next to "b" and others.
func TestStatus(t *testing.T) {
	const b = "web b 192.0.2.2 2 0 1 80 | 0 0 0"
	for _, c := range []struct {
		name        string
		processes   [][]string
		want        balancer.State
		connections int64
		others      int
	}{
		{name: "up", processes: [][]string{{"web a 192.0.2.1 2 0 1 80 | 0 7 0", b}}, want: balancer.Attached, connections: 7, others: 1},
		{name: "down is still a member", processes: [][]string{{"web a 192.0.2.1 0 0 1 80 | 0 0 0", b}}, want: balancer.Attached, others: 1},
		{name: "name does not resolve", processes: [][]string{{"web a - 0 32 1 80 | 0 0 0", b}}, want: balancer.Disabled, others: 1},
		{name: "its name has another address", processes: [][]string{{"web a 192.0.2.3 2 0 1 80 | 0 5 0", b}}, want: balancer.Absent, others: 2},
		{name: "its name has another port", processes: [][]string{{"web a 192.0.2.1 2 0 1 81 | 0 5 0", b}}, want: balancer.Absent, others: 2},
		{name: "its name has another address in one", processes: [][]string{{"web a 192.0.2.3 2 0 1 80 | 0 5 0", b}, {"web a 192.0.2.1 2 8 1 80 | 0 1 0", b}}, want: balancer.Draining, connections: 1, others: 1},
		{name: "was disabled by configuration, and enabled", processes: [][]string{{"web a 192.0.2.1 2 4 1 80 | 0 0 0", b}}, want: balancer.Attached, others: 1},
		{name: "drains", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 2 0", b}}, want: balancer.Draining, connections: 2, others: 1},
		{name: "has some that wait", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 3 2 0", b}}, want: balancer.Draining, connections: 5, others: 1},
		{name: "has drained", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 0 0", b}}, want: balancer.Drained, others: 1},
		{name: "drains with the one it tracks", processes: [][]string{{"web a 192.0.2.1 2 16 1 80 | 0 1 0", b}}, want: balancer.Draining, connections: 1, others: 1},
		{name: "weight zero", processes: [][]string{{"web a 192.0.2.1 2 0 0 80 | 0 1 0", b}}, want: balancer.Draining, connections: 1, others: 1},
		{name: "has drained with the one it tracks", processes: [][]string{{"web a 192.0.2.1 2 16 1 80 | 0 0 0", b}}, want: balancer.Disabled, others: 1},
		{name: "weight zero, and no connection", processes: [][]string{{"web a 192.0.2.1 2 0 0 80 | 0 0 0", b}}, want: balancer.Disabled, others: 1},
		{name: "has drained, weight zero", processes: [][]string{{"web a 192.0.2.1 2 8 0 80 | 0 0 0", b}}, want: balancer.Drained, others: 1},
		{name: "has drained, with the one it tracks too", processes: [][]string{{"web a 192.0.2.1 2 24 1 80 | 0 0 0", b}}, want: balancer.Drained, others: 1},
		{name: "has drained in one, weight zero in another", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 0 0", b}, {"web a 192.0.2.1 2 0 0 80 | 0 0 0", b}}, want: balancer.Drained, others: 1},
		{name: "in maintenance", processes: [][]string{{"web a 192.0.2.1 0 1 1 80 | 0 1 0", b}}, want: balancer.Disabled, connections: 1, others: 1},
		{name: "disabled by configuration", processes: [][]string{{"web a 192.0.2.1 0 5 1 80 | 0 0 0", b}}, want: balancer.Disabled, others: 1},
		{name: "in maintenance with the one it tracks", processes: [][]string{{"web a 192.0.2.1 0 10 1 80 | 0 0 0", b}}, want: balancer.Disabled, others: 1},
		{name: "gone", processes: [][]string{{b}}, want: balancer.Absent, others: 1},
		{name: "one process is behind", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 1 0", b}, {"web a 192.0.2.1 2 0 1 80 | 0 2 0", b}}, want: balancer.Attached, connections: 3, others: 1},
		{name: "one process has the last connection", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 0 0", b}, {"web a 192.0.2.1 2 8 1 80 | 0 1 0", b}}, want: balancer.Draining, connections: 1, others: 1},
		{name: "in maintenance in one", processes: [][]string{{"web a 192.0.2.1 2 8 1 80 | 0 0 0", b}, {"web a 192.0.2.1 0 1 1 80 | 0 0 0", b}}, want: balancer.Drained, others: 1},
		{name: "gone in one", processes: [][]string{{"web a 192.0.2.1 2 0 1 80 | 0 0 0", b}, {b}}, want: balancer.Attached, others: 1},
		{name: "others are the fewest", processes: [][]string{{"web a 192.0.2.1 2 0 1 80 | 0 0 0", b}, {"web a 192.0.2.1 2 0 1 80 | 0 0 0", "web b 192.0.2.2 0 0 1 80 | 0 0 0"}}, want: balancer.Attached},
		{name: "others that do not count", processes: [][]string{{
			"web a 192.0.2.1 2 0 1 80 | 0 0 0",
			"web same-node 192.0.2.1 2 0 1 8080 | 0 0 0",
			"web down 192.0.2.3 0 0 1 80 | 0 0 0",
			"web stops 192.0.2.3 3 0 1 80 | 0 0 0",
			"web maint 192.0.2.3 0 1 1 80 | 0 0 0",
			"web drains 192.0.2.3 2 8 1 80 | 0 0 0",
			"web weightless 192.0.2.3 2 0 0 80 | 0 0 0",
			"web backup 192.0.2.3 2 0 1 80 | 0 0 1",
			"api elsewhere 192.0.2.3 2 0 1 80 | 0 0 0",
			"web starts 192.0.2.3 1 0 1 80 | 0 0 0",
		}}, want: balancer.Attached, others: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fakes []*fake
			for _, lines := range c.processes {
				fakes = append(fakes, &fake{lines: lines})
			}
			got, err := driver(t, nil, fakes...).Status(t.Context(), []balancer.Membership{webA})
			if err != nil {
				t.Fatal(err)
			}
			want := balancer.Status{State: c.want, Connections: &c.connections, Others: &c.others}
			if c.want == balancer.Absent {
				want.Connections = nil
			}
			if diff := cmp.Diff([]balancer.Status{want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	got, err := driver(t, nil, &fake{lines: []string{b}}).Status(t.Context(), []balancer.Membership{{Pool: "api", Member: "a"}, {Pool: "web", Member: "b", Port: 80, Address: "192.0.2.2"}})
	zero, connections := 0, int64(0)
	want := []balancer.Status{{State: balancer.Absent}, {State: balancer.Attached, Connections: &connections, Others: &zero}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("a backend that is gone: %v (-want +got):\n%s", err, diff)
	}
}

func TestDrainAndRestore(t *testing.T) {
	lines := []string{
		"web ready 192.0.2.1 2 0 1 80 | 0 0 0",
		"web enabled 192.0.2.1 2 4 1 80 | 0 0 0",
		"web unresolved - 0 32 1 80 | 0 0 0",
		"web drains 192.0.2.1 2 8 1 80 | 0 0 0",
		"web drains-weightless 192.0.2.1 2 8 0 80 | 0 0 0",
		"web drains-and-inherits 192.0.2.1 2 24 1 80 | 0 0 0",
		"web weightless 192.0.2.1 2 0 0 80 | 0 0 0",
		"web inherits 192.0.2.1 2 16 1 80 | 0 0 0",
		"web maint 192.0.2.1 0 1 1 80 | 0 0 0",
		"web disabled 192.0.2.1 0 5 1 80 | 0 0 0",
		"web tracks 192.0.2.1 0 2 1 80 | 0 0 0",
		"web tracks-drained 192.0.2.1 0 10 1 80 | 0 0 0",
		"web both 192.0.2.1 0 9 1 80 | 0 0 0",
		"web not-asked-for 192.0.2.1 2 0 1 80 | 0 0 0",
	}
	var asked []balancer.Membership
	for _, line := range lines[:len(lines)-1] {
		asked = append(asked, balancer.Membership{Pool: "web", Member: strings.Fields(line)[1], Port: 80, Address: "192.0.2.1"})
	}
	lines = append(lines, "web moved 192.0.2.7 2 0 1 80 | 0 0 0", "web moved-drained 192.0.2.7 2 8 1 80 | 0 0 0", "web unresolved-drained - 0 40 1 80 | 0 0 0")
	for _, name := range []string{"moved", "moved-drained", "unresolved-drained"} {
		asked = append(asked, balancer.Membership{Pool: "web", Member: name, Port: 80, Address: "192.0.2.1"})
	}
	asked = append(asked, balancer.Membership{Pool: "web", Member: "gone"}, balancer.Membership{Pool: "web", Member: "ready state ready;shutdown"})
	f := &fake{lines: lines}
	d := driver(t, nil, f)
	if err := d.Drain(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web/ready state drain", "web/enabled state drain", "web/weightless state drain", "web/inherits state drain"}, f.sets); diff != "" {
		t.Errorf("Drain (-want +got):\n%s", diff)
	}
	f.sets = nil
	if err := d.Restore(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"web/drains state ready", "web/drains-weightless state ready", "web/drains-and-inherits state ready", "web/tracks-drained state ready", "web/unresolved-drained state ready"}, f.sets); diff != "" {
		t.Errorf("Restore (-want +got):\n%s", diff)
	}
}

// TestOneOfTwoProcessesIsUnreachable: the other process executes the command, and the missing one causes an error.
func TestOneOfTwoProcessesIsUnreachable(t *testing.T) {
	f := &fake{lines: []string{"web a 192.0.2.1 2 0 1 80 | 0 0 0"}}
	d := driver(t, nil, f)
	gone := endpoint{"unix", filepath.Join(t.TempDir(), "gone")}
	d.endpoints = append([]endpoint{gone}, d.endpoints...)
	m := []balancer.Membership{webA}
	for verb, err := range map[string]error{
		"Drain":    d.Drain(t.Context(), m),
		"Restore":  d.Restore(t.Context(), m),
		"Status":   second(d.Status(t.Context(), m)),
		"Discover": second(d.Discover(t.Context(), balancer.Node{Addresses: []string{"192.0.2.1"}})),
	} {
		if err == nil || !strings.Contains(err.Error(), gone.String()) || !strings.Contains(err.Error(), `"show servers state"`) {
			t.Errorf("%s = %v, want an error with the endpoint and the command", verb, err)
		}
	}
	statuses, _ := d.Status(t.Context(), m)
	if len(statuses) != 1 || !statuses[0].Partial || statuses[0].State != balancer.Attached {
		t.Errorf("the process that is there says %+v", statuses)
	}
	if found, _ := d.Discover(t.Context(), balancer.Node{Addresses: []string{"192.0.2.1"}}); len(found) != 1 {
		t.Errorf("the process that is there knows %+v", found)
	}
	if !slices.Equal(f.sets, []string{"web/a state drain"}) {
		t.Errorf("the process that is there was told %q", f.sets)
	}
}

// TestAnotherAddressIsElsewhere: an address that cannot be parsed is not the Node's.
func TestAnotherAddressIsElsewhere(t *testing.T) {
	node := balancer.Node{Addresses: []string{"192.0.2.1", "2001:DB8:0::1"}}
	for address, want := range map[string]bool{"192.0.2.1": false, "2001:db8::1": false, "192.0.2.2": true, "-": true} {
		m := webA
		m.Address = address
		if got := (&Driver{}).Elsewhere(node, m); got != want {
			t.Errorf("%s: %t, want %t", address, got, want)
		}
		if (&Driver{}).Elsewhere(balancer.Node{}, m) {
			t.Errorf("%s is elsewhere than a Node whose addresses are not known", address)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestHostileAnswers: an incomplete answer is an error with the command.
func TestHostileAnswers(t *testing.T) {
	const row = "1 web 1 a 192.0.2.1 2 0 1 80\n"
	var full strings.Builder
	for i := range mostServers + 1 {
		fmt.Fprintf(&full, "1 web 1 s%d - 2 0 1 80\n", i)
	}
	m := []balancer.Membership{webA}
	for name, answers := range map[string]map[string]string{
		"nothing":                 {"show servers state": ""},
		"an empty line":           {"show servers state": "\n"},
		"no permission":           {"show servers state": "Permission denied\n\n"},
		"another version":         {"show servers state": strings.Replace(stateHeader, "1", "2", 1) + row + "\n"},
		"no header":               {"show servers state": "1\n\n"},
		"other columns":           {"show servers state": "1\n# be_id be_name\n1 web\n\n"},
		"cut in a row":            {"show servers state": stateHeader + "1 web 1 a 192.0"},
		"cut between rows":        {"show servers state": stateHeader + row},
		"short row":               {"show servers state": stateHeader + "1 web 1 a 192.0.2.1 2 0 1\n\n"},
		"state is no number":      {"show servers state": stateHeader + "1 web 1 a 192.0.2.1 2 drain 1 80\n\n"},
		"state is negative":       {"show servers state": stateHeader + "1 web 1 a 192.0.2.1 2 -1 1 80\n\n"},
		"port is none":            {"show servers state": stateHeader + "1 web 1 a 192.0.2.1 2 0 1 65536\n\n"},
		"a name with a command":   {"show servers state": stateHeader + "1 web;quit 1 a 192.0.2.1 2 0 1 80\n\n"},
		"a long name":             {"show servers state": stateHeader + strings.Replace(row, " a ", " "+strings.Repeat("a", maxName+1)+" ", 1) + "\n"},
		"a name of megabytes":     {"show servers state": stateHeader + strings.Replace(row, " a ", " "+strings.Repeat("\x01", 1<<20)+" ", 1) + "\n"},
		"too many servers":        {"show servers state": stateHeader + full.String() + "\n"},
		"goes on after its end":   {"show servers state": stateHeader + row + "\n" + row + "\n"},
		"a page of the web":       {"show servers state": "HTTP/1.0 400 Bad request\r\n\r\n<html>\n\n"},
		"binary":                  {"show servers state": "\x00\xff\x16\x03\x01\n\n"},
		"too long":                {"show servers state": strings.Repeat("1 web\n", limit/6+1) + "\n"},
		"statistics: nothing":     {"show stat -1 4 -1": ""},
		"statistics: empty":       {"show stat -1 4 -1": "\n"},
		"statistics: a long one":  {"show stat -1 4 -1": statHeader + "web," + strings.Repeat("a", 1<<20) + ",0,\x01,0,\n\n"},
		"statistics: long number": {"show stat -1 4 -1": statHeader + "web,a,0," + strings.Repeat("\x01", 1<<20) + ",0,\n\n"},
		"statistics: no such":     {"show stat -1 4 -1": "Unknown command\n\n"},
		"statistics: no columns":  {"show stat -1 4 -1": "# pxname,svname,\nweb,a,\n\n"},
		"statistics: no server":   {"show stat -1 4 -1": statHeader + "\n"},
		"statistics: short row":   {"show stat -1 4 -1": statHeader + "web,a,0\n\n"},
		"statistics: no number":   {"show stat -1 4 -1": statHeader + "web,a,0,,0,\n\n"},
		"statistics: negative":    {"show stat -1 4 -1": statHeader + "web,a,0,-1,0,\n\n"},
		"statistics: cut":         {"show stat -1 4 -1": statHeader + "web,a,0,0,0,\n"},
		"statistics: quotes":      {"show stat -1 4 -1": statHeader + "web,a,\"0,0,0,\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{lines: []string{"web a 192.0.2.1 2 0 1 80 | 0 0 0"}, answers: answers}
			got, err := driver(t, nil, f).Status(t.Context(), m)
			if err == nil || got != nil {
				t.Fatalf("Status = %v, %v, want an error", got, err)
			}
			for command := range answers {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", command)) || len(err.Error()) > 600 {
					t.Errorf("error does not name the command, or is long: %v", err)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for answer, want := range map[string]string{
		"Permission denied\n\n":             `"level admin"`,
		"No such server.\n\n":               `"No such server."`,
		"Unknown \x1b[31mcommand\nmore\n\n": `"Unknown \x1b[31mcommand"`,
	} {
		f := &fake{
			lines:   []string{"web a 192.0.2.1 2 0 1 80 | 0 0 0"},
			answers: map[string]string{"set server web/a state drain": answer},
		}
		err := driver(t, nil, f).Drain(t.Context(), []balancer.Membership{webA})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"set server web/a state drain"`) {
			t.Errorf("answer %q: %v, want an error with %s", answer, err, want)
		}
	}
}

// TestOtherServerIsNotHAProxy: the error names what to configure instead.
func TestOtherServerIsNotHAProxy(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 400 Bad Request\r\n\r\n<html></html>\r\n": "this is not HAProxy's runtime API: name its stats socket (it answers \"HTTP/1.1 400 Bad Request\")",
		"SSH-2.0-OpenSSH_9.9\r\n":                           "this is not HAProxy's runtime API: name its stats socket (it answers \"SSH-2.0-OpenSSH_9.9\")",
		"\x15\x03\x03\x00\x02\x02\n":                        "this is not HAProxy's runtime API: name its stats socket (it answers \"\\x15\\x03\\x03\\x00\\x02\\x02\")",
		"":                                                  "no answer: if this is not HAProxy's runtime API, name its stats socket",
		"Permission denied\n\n":                             `permission denied: the "stats socket" needs "level admin"`,
	} {
		f := &fake{answers: map[string]string{"show servers state": answer}}
		if _, err := driver(t, nil, f).Status(t.Context(), nil); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("answer %q: %v, want an error with %s", answer, err, want)
		}
	}
}

// TestALongAnswerCostsLittle: all processes of a LoadBalancer send answers of the maximum length, and longer.
func TestALongAnswerCostsLittle(t *testing.T) {
	var long strings.Builder
	long.WriteString(stateHeader)
	for i := 0; long.Len() < limit+limit/2; i++ {
		fmt.Fprintf(&long, "1 b 1 %x - 2 0 1 0\n", i)
	}
	for name, answer := range map[string]string{
		"servers": long.String() + "\n",
		"a line":  stateHeader + strings.Repeat("x", limit) + "\n\n",
		"a name":  stateHeader + "1 " + strings.Repeat("\x01", limit) + " 1 a 192.0.2.1 2 0 1 80\n\n",
	} {
		spec, text := expv1.HAProxyBalancer{}, []byte(answer)
		for range 16 {
			spec.Endpoints = append(spec.Endpoints, listen(t, func(conn net.Conn, _ string) { _, _ = conn.Write(text) }))
		}
		d, err := New(spec)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = d.Discover(t.Context(), balancer.Node{Name: "n", Addresses: []string{"192.0.2.1"}})
		runtime.ReadMemStats(&after)
		if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 150 {
			t.Errorf("%s: one look takes %d MB", name, mb)
		}
		if err == nil || len(err.Error()) > 16*512 {
			t.Errorf("%s: want an error that is short: %.1000v", name, err)
		}
	}
}

// TestSlowAnswers: the context ends a command that hangs, and one with a slow answer.
func TestSlowAnswers(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"hangs": func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) },
		"trickles": func(conn net.Conn) {
			for {
				if _, err := conn.Write([]byte("1")); err != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(expv1.HAProxyBalancer{Endpoints: []string{listen(t, func(conn net.Conn, _ string) { serve(conn) })}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err = d.Status(ctx, nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Status = %v, want %v", err, context.DeadlineExceeded)
			}
			if took := time.Since(start); took > timeout/2 {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// FuzzAnswers: any answer causes at most an error, and no name in it can carry a command.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(stateHeader+"1 web 1 a 192.0.2.1 2 0 1 80\n\n"), []byte(statHeader+"web,a,0,0,0,\n\n"))
	f.Add([]byte("1\n# be_name srv_name\n\n"), []byte("# pxname,\n\n"))
	f.Add([]byte(""), []byte("\n"))
	f.Fuzz(func(t *testing.T, state, stat []byte) {
		servers, err := parseServers(bytes.NewReader(state))
		if err != nil {
			return
		}
		for _, s := range servers {
			if strings.ContainsAny(s.backend+s.name, " \t\r\n;/#\\") || s.backend == "" || s.name == "" {
				t.Errorf("server %q of %q", s.name, s.backend)
			}
		}
		_ = count(servers, bytes.NewReader(stat))
	})
}
