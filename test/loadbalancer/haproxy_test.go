// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer tests that a Node leaves a real load balancer without losing connections.
package loadbalancer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	driver "github.com/finos/cluster-api-addon-provider-5spot/exp/detach/haproxy"
	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/haproxy"
)

const (
	addressA = "127.0.0.2"
	addressB = "127.0.0.3"
	addressC = "::1"
)

// A world is HAProxy in front of two Nodes.
type world struct {
	*haproxy.Process
	t *testing.T
	// a and b are the services on the Nodes.
	a, b *service
	*driver.Driver
}

// newWorld starts a world with the backends "web" and more.
func newWorld(t *testing.T, more ...string) *world {
	t.Helper()
	w := &world{t: t, a: serve(t, addressA), b: serve(t, addressB), Process: start(t)}
	w.must(w.Start(t.Context(), w.config(more...)))
	w.Driver = newDriver(t, w.Unix)
	return w
}

// start returns a process that ends with the test.
func start(t *testing.T) *haproxy.Process {
	t.Helper()
	p, err := haproxy.New()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("HAProxy's log:\n%s", p.LogTail(50))
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newDriver(t *testing.T, endpoints ...string) *driver.Driver {
	t.Helper()
	d, err := driver.New(expv1.HAProxyBalancer{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) config(more ...string) string {
	return fmt.Sprintf(`
defaults
  mode tcp
  timeout connect 1s
  timeout client 1h
  timeout server 1h
frontend web
  bind 127.0.0.1:%d
  default_backend web
backend web
  server a %s
  server b %s check inter 20ms fall 1 rise 1
%s
`, w.Port(0), w.a, w.b, strings.Join(more, "\n"))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// find returns the memberships of the first Node.
func (w *world) find() []balancer.Membership {
	w.t.Helper()
	found, err := w.Discover(w.t.Context(), balancer.Node{Name: "node", Addresses: []string{addressA}})
	w.must(err)
	return found
}

// wants compares a Status. HAProxy may need a moment to detect the end of a connection or of a server.
func (w *world) wants(m []balancer.Membership, state balancer.State, connections int64, others int) {
	w.t.Helper()
	want := balancer.Status{State: state, Connections: &connections, Others: &others}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	w.must(await.Until(ctx, func(ctx context.Context) error {
		statuses, err := w.Status(ctx, m)
		if err != nil {
			return err
		}
		if len(statuses) != len(m) || len(m) == 0 {
			return fmt.Errorf("%d statuses of %d memberships", len(statuses), len(m))
		}
		for i, got := range statuses {
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("%v (-want +got):\n%s", m[i], diff)
			}
		}
		return nil
	}))
}

// runCommand runs a command as another client would.
func (w *world) runCommand(command string) string {
	w.t.Helper()
	answer, err := w.Command(w.t.Context(), command)
	w.must(err)
	return answer
}

// visit opens new connections, and returns how many reached each service.
func (w *world) visit(n int) map[string]int {
	w.t.Helper()
	reached := map[string]int{}
	for range n {
		s := w.connect()
		reached[s.server]++
		s.close()
	}
	return reached
}

// connectTo opens connections until one reaches a service.
func (w *world) connectTo(v *service) *session {
	w.t.Helper()
	for range 10 {
		s := w.connect()
		if s.server == v.String() {
			return s
		}
		s.close()
	}
	w.t.Fatalf("no connection reached %s", v)
	return nil
}

// A service sends its name on each connection, and then echoes.
type service struct{ net.Listener }

func (s *service) String() string { return s.Addr().String() }

func serve(t *testing.T, address string) *service {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				_, _ = fmt.Fprintln(conn, l.Addr())
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return &service{l}
}

// A session is a connection of a client.
type session struct {
	t      *testing.T
	conn   net.Conn
	reader *bufio.Reader
	server string
}

func (w *world) connect() *session {
	w.t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port(0)))
	w.must(err)
	w.must(conn.SetDeadline(time.Now().Add(time.Minute)))
	s := &session{t: w.t, conn: conn, reader: bufio.NewReader(conn)}
	w.t.Cleanup(s.close) // before the services, which wait for it
	s.server = s.line()
	return s
}

func (s *session) line() string {
	s.t.Helper()
	line, err := s.reader.ReadString('\n')
	if err != nil {
		s.t.Fatalf("a client's connection ended: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// works sends a text, and fails the test if the service does not echo it.
func (s *session) works() {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.conn, "hello"); err != nil {
		s.t.Fatal(err)
	}
	if got := s.line(); got != "hello" {
		s.t.Fatalf("the service returned %q", got)
	}
}

func (s *session) close() { _ = s.conn.Close() }

// TestLeaveAndComeBack: a session lives as long as its client wants, and new ones go to the other Node.
func TestLeaveAndComeBack(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			w := newWorld(t)
			if network == "tcp" {
				w.Driver = newDriver(t, w.TCP)
			}
			m := w.find()
			port := int32(w.a.Addr().(*net.TCPAddr).Port)
			if diff := cmp.Diff([]balancer.Membership{{Pool: "web", Member: "a", Port: port, Address: addressA, Persistent: true}}, m); diff != "" {
				t.Fatalf("Discover (-want +got):\n%s", diff)
			}
			w.wants(m, balancer.Attached, 0, 1)
			long := w.connectTo(w.a)
			w.wants(m, balancer.Attached, 1, 1)

			for range 2 {
				w.must(w.Drain(t.Context(), m))
				w.wants(m, balancer.Draining, 1, 1)
			}
			if diff := cmp.Diff(map[string]int{w.b.String(): 50}, w.visit(50)); diff != "" {
				t.Errorf("new connections (-want +got):\n%s", diff)
			}
			long.works()
			w.wants(m, balancer.Draining, 1, 1)
			long.close()
			w.wants(m, balancer.Drained, 0, 1)

			for range 2 {
				w.must(w.Restore(t.Context(), m))
				w.wants(m, balancer.Attached, 0, 1)
			}
			if reached := w.visit(20); reached[w.a.String()] == 0 || reached[w.b.String()] == 0 {
				t.Errorf("after the Node is back, connections reach %v", reached)
			}
		})
	}
}

// TestOthers: a server whose check fails does not count as another member.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	m := w.find()
	w.wants(m, balancer.Attached, 0, 1)
	w.must(w.b.Close())
	w.wants(m, balancer.Attached, 0, 0)
}

// TestReload: HAProxy loses the drain, is drained again, and no session is lost. Sessions of the old worker are not
// counted.
func TestReload(t *testing.T) {
	w := newWorld(t)
	m := w.find()
	long := w.connectTo(w.a)
	w.must(w.Drain(t.Context(), m))
	w.wants(m, balancer.Draining, 1, 1)

	w.must(w.Reload(t.Context(), w.config()))
	w.wants(m, balancer.Attached, 0, 1)
	long.works()
	w.must(w.Drain(t.Context(), m))
	w.wants(m, balancer.Drained, 0, 1)
	if diff := cmp.Diff(map[string]int{w.b.String(): 20}, w.visit(20)); diff != "" {
		t.Errorf("new connections (-want +got):\n%s", diff)
	}
	long.works()

	w.must(w.Reload(t.Context(), strings.Replace(w.config(), "server a ", "server renamed ", 1)))
	statuses, err := w.Status(t.Context(), m)
	one := 2 // b, and the Node under its new name
	if diff := cmp.Diff([]balancer.Status{{State: balancer.Absent, Others: &one}}, statuses); err != nil || diff != "" {
		t.Errorf("after its server is gone: %v (-want +got):\n%s", err, diff)
	}
	w.must(errors.Join(w.Drain(t.Context(), m), w.Restore(t.Context(), m)))
}

// TestAReloadSwapsAddresses: the address identifies a membership. A server with the address of another host is neither
// drained nor restored, with or without a reload.
func TestAReloadSwapsAddresses(t *testing.T) {
	w := newWorld(t)
	m := w.find()
	w.must(w.Drain(t.Context(), m))
	w.wants(m, balancer.Drained, 0, 1)
	w.must(w.Reload(t.Context(), strings.NewReplacer(w.a.String(), w.b.String(), w.b.String(), w.a.String()).Replace(w.config())))
	statuses, err := w.Status(t.Context(), m)
	if w.must(err); statuses[0].State != balancer.Absent {
		t.Errorf("its old place is %s", statuses[0].State)
	}
	others, err := w.Discover(t.Context(), balancer.Node{Name: "other", Addresses: []string{addressB}})
	w.must(errors.Join(err, w.Drain(t.Context(), m)))
	w.wants(others, balancer.Attached, 0, 1)
	now := w.find()
	if len(now) != 1 || now[0].Member != "b" {
		t.Fatalf("its place is %+v now", now)
	}
	w.must(w.Drain(t.Context(), now))
	if diff := cmp.Diff(map[string]int{w.b.String(): 20}, w.visit(20)); diff != "" {
		t.Errorf("new connections (-want +got):\n%s", diff)
	}
	w.runCommand("set server web/a state drain") // An administrator drains it.
	w.must(w.Restore(t.Context(), m))
	w.wants(others, balancer.Drained, 0, 0)
}

// TestMaintenance is set by another administrator.
func TestMaintenance(t *testing.T) {
	const off = "backend off\n  server off " + addressA + ":1 disabled"
	for name, c := range map[string]struct {
		pool   string
		before []string
		ours   bool
	}{
		"by an administrator":            {pool: "web", before: []string{"set server web/a state maint"}},
		"after we drained":               {pool: "web", before: []string{"set server web/a state maint"}, ours: true},
		"by configuration":               {pool: "off"},
		"by configuration and then not":  {pool: "off", before: []string{"set server off/off state ready", "set server off/off state maint"}},
		"by the server that this tracks": {pool: "tracks", before: []string{"set server web/b state maint"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, off, "backend tracks\n  server tracks "+addressA+":1 track web/b")
			var m []balancer.Membership
			for _, each := range w.find() {
				if each.Pool == c.pool {
					m = append(m, each)
				}
			}
			others := 0
			if c.pool == "web" {
				others = 1
			}
			if c.ours {
				w.must(w.Drain(t.Context(), m))
				w.wants(m, balancer.Drained, 0, others)
			}
			for _, command := range c.before {
				if answer := w.runCommand(command); strings.TrimSpace(answer) != "" {
					t.Fatal(answer)
				}
			}
			w.wants(m, balancer.Disabled, 0, others)
			before := w.admin(m)
			w.must(w.Drain(t.Context(), m))
			w.must(w.Restore(t.Context(), m))
			if got := w.admin(m); got != before {
				t.Errorf("its state was %s, and is %s", before, got)
			}
			w.wants(m, balancer.Disabled, 0, others)
		})
	}
}

// admin is HAProxy's administrative state of a server.
func (w *world) admin(m []balancer.Membership) string {
	w.t.Helper()
	for line := range strings.Lines(w.runCommand("show servers state " + m[0].Pool)) {
		if fields := strings.Fields(line); len(fields) > 6 && fields[3] == m[0].Member {
			return fields[6]
		}
	}
	w.t.Fatalf("HAProxy has no server %v", m)
	return ""
}

// TestDrainOfSomebodyElse cannot be distinguished from 5-Spot's.
func TestDrainOfSomebodyElse(t *testing.T) {
	w := newWorld(t)
	m := w.find()
	long := w.connectTo(w.a)
	w.runCommand("set server web/a state drain")
	w.wants(m, balancer.Draining, 1, 1)
	w.must(w.Drain(t.Context(), m))
	long.close()
	w.wants(m, balancer.Drained, 0, 1)
	w.must(w.Restore(t.Context(), m))
	w.wants(m, balancer.Attached, 0, 1)
}

// TestManyPlaces: a Node has servers in more than one backend, at more than one port, and addresses of both families.
func TestManyPlaces(t *testing.T) {
	w := newWorld(t,
		"backend api\n  server a-1 "+addressA+":1001\n  server a-2 "+addressA+":1002\n  server c ["+addressC+"]:1003",
		"backend none")
	node := balancer.Node{Name: "node", Addresses: []string{addressA, addressC}}
	m, err := w.Discover(t.Context(), node)
	w.must(err)
	port := int32(w.a.Addr().(*net.TCPAddr).Port)
	if diff := cmp.Diff([]balancer.Membership{
		{Pool: "api", Member: "a-1", Port: 1001, Address: addressA, Persistent: true},
		{Pool: "api", Member: "a-2", Port: 1002, Address: addressA, Persistent: true},
		{Pool: "api", Member: "c", Port: 1003, Address: addressC, Persistent: true},
		{Pool: "web", Member: "a", Port: port, Address: addressA, Persistent: true},
	}, m); diff != "" {
		t.Fatalf("Discover (-want +got):\n%s", diff)
	}
	w.wants(m[:2], balancer.Attached, 0, 1) // c alone: a-1 and a-2 are one Node
	w.must(w.Drain(t.Context(), m[:2]))
	w.wants(m[:2], balancer.Drained, 0, 1)
	w.wants(m[2:3], balancer.Attached, 0, 0)
	w.wants(m[3:], balancer.Attached, 0, 1)
	w.must(w.Drain(t.Context(), m))
	w.wants(m[:3], balancer.Drained, 0, 0)
	w.wants(m[3:], balancer.Drained, 0, 1)
	w.must(w.Restore(t.Context(), m))
	w.wants(m[3:], balancer.Attached, 0, 1)
}

// TestSeveralProcesses: a drain is complete when all processes have it. If one is down, the others are drained anyway,
// and the Node does not count as out.
func TestSeveralProcesses(t *testing.T) {
	w := newWorld(t)
	twin := start(t)
	w.must(twin.Start(t.Context(), strings.Replace(w.config(), fmt.Sprint(w.Port(0)), fmt.Sprint(twin.Port(0)), 1)))
	alone := w.Driver
	w.Driver = newDriver(t, w.Unix, twin.TCP)
	m := w.find()
	w.wants(m, balancer.Attached, 0, 1)

	w.must(alone.Drain(t.Context(), m))
	w.wants(m, balancer.Attached, 0, 1)
	w.must(alone.Restore(t.Context(), m))

	w.must(twin.Kill())
	if err := w.Drain(t.Context(), m); err == nil || !strings.Contains(err.Error(), twin.TCP) {
		t.Errorf("Drain = %v, want an error with %s", err, twin.TCP)
	}
	if _, err := w.Status(t.Context(), m); err == nil || !strings.Contains(err.Error(), twin.TCP) {
		t.Errorf("Status = %v, want an error with %s", err, twin.TCP)
	}
	statuses, err := alone.Status(t.Context(), m)
	if err != nil || statuses[0].State != balancer.Drained {
		t.Errorf("the process that is there says %v, %v", statuses, err)
	}

	w.must(twin.Process.Start(t.Context()))
	w.wants(m, balancer.Attached, 0, 1)
	w.must(w.Drain(t.Context(), m))
	w.wants(m, balancer.Drained, 0, 1)
}

// TestRights: with read-only access the error names the missing level.
func TestRights(t *testing.T) {
	w := newWorld(t)
	w.Driver = newDriver(t, w.ReadOnly)
	m := w.find()
	w.wants(m, balancer.Attached, 0, 1)
	if err := w.Drain(t.Context(), m); err == nil || !strings.Contains(err.Error(), `"level admin"`) {
		t.Errorf("Drain = %v, want an error that says what is missing", err)
	}
}
