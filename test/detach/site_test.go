// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/haproxy"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	patience = 3 * time.Minute
	// session is how long a client keeps a connection.
	session = 4 * time.Second
)

// A site is two machines with a web server each, HAProxy in front of them, and its clients.
type site struct {
	*testing.T
	*specs.Cluster
	proxy    *haproxy.Process
	machines []*v1alpha1.ScheduledMachine
	servers  []*webServer
}

// newSite runs everything; name tells its machines from those of other tests.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	s := &site{T: t, Cluster: &specs.Cluster{T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: "lab", Patience: patience}}
	for i := range 2 {
		s.servers = append(s.servers, newWebServer(t, fmt.Sprintf("127.0.0.%d", 11+i)))
		sm := system.ScheduledMachine(lab, fmt.Sprintf("%s-%d", name, i), infrav1.PlaneMachineSpec{Address: s.servers[i].host})
		s.machines = append(s.machines, s.Start(sm))
		t.Cleanup(func() { s.remove(sm) })
	}
	for i, sm := range s.machines {
		s.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
		s.serve(i)
	}
	proxy, err := haproxy.New()
	s.must(err)
	s.proxy = proxy
	t.Cleanup(func() { _ = proxy.Stop() })
	s.must(proxy.Start(s.step(), s.config()))
	return s
}

// config has connections alternate between the two servers.
func (s *site) config() string {
	var text strings.Builder
	fmt.Fprintf(&text, `defaults
  mode tcp
  timeout connect 2s
  timeout client 30s
  timeout server 30s
frontend web
  bind 127.0.0.1:%d
  default_backend web
backend web
  balance roundrobin
`, s.proxy.Port(0))
	for i, server := range s.servers {
		fmt.Fprintf(&text, "  server box-%d %s\n", i, server.address)
	}
	return text.String()
}

// serve runs the web server of a machine in a pod: it ends when the pod does.
func (s *site) serve(i int) {
	s.Helper()
	s.must(s.servers[i].start())
	pod := s.RunPod(s.machines[i], fmt.Sprintf("%s-web", s.machines[i].Name), "web")
	watcher, err := lab.Client.Watch(s.T.Context(), &corev1.PodList{}, client.InNamespace(pod.Namespace), client.MatchingLabels{"app": pod.Name})
	s.must(err)
	go func() {
		defer watcher.Stop()
		for e := range watcher.ResultChan() {
			if seen, ok := e.Object.(*corev1.Pod); ok && !seen.DeletionTimestamp.IsZero() {
				s.servers[i].stop()
				return
			}
		}
	}()
}

// balance tells 5-Spot of the load balancer.
func (s *site) balance(change func(*expv1.LoadBalancer)) *expv1.LoadBalancer {
	s.Helper()
	lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: s.machines[0].Name + "-edge"}}
	lb.Spec.ClusterName = "lab"
	lb.Spec.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{s.proxy.Unix}, Backends: []string{"web"}}
	if change != nil {
		change(lb)
	}
	s.must(s.Management.Create(s.step(), lb))
	s.T.Cleanup(func() { s.remove(lb) })
	return lb
}

// remove deletes an object after the test, and waits until it is gone.
func (s *site) remove(obj client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Management.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		s.Error(err)
	}
	if err := await.Gone(ctx, s.Management, obj); err != nil {
		s.Error(err)
	}
}

// step is the time for one step.
func (s *site) step() context.Context {
	ctx, cancel := context.WithTimeout(s.T.Context(), patience)
	s.T.Cleanup(cancel)
	return ctx
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// A webServer answers each line with its name.
type webServer struct {
	host, address string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
}

func newWebServer(t *testing.T, host string) *webServer {
	t.Helper()
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	w := &webServer{host: host, address: l.Addr().String(), open: map[net.Conn]bool{}}
	_ = l.Close()
	t.Cleanup(w.stop)
	return w
}

func (w *webServer) start() error {
	l, err := net.Listen("tcp", w.address)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.listener = l
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.open[c] = true
			w.mu.Unlock()
			go w.serve(c)
		}
	}()
	return nil
}

func (w *webServer) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		w.mu.Lock()
		delete(w.open, c)
		w.mu.Unlock()
	}()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if _, err := io.WriteString(c, w.host+"\n"); err != nil {
			return
		}
	}
}

// stop ends it as a process that is killed: its connections end, too.
func (w *webServer) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		_ = w.listener.Close()
	}
	for c := range w.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// A crowd are clients: each opens a connection, asks every 50 ms for a while, closes it, and
// opens another.
type crowd struct {
	port int
	wait sync.WaitGroup
	stop context.CancelFunc

	mu sync.Mutex
	// answers are how many each server gave, refused how many connections were not opened, and
	// cut how many ended before their client wanted.
	answers      map[string]int
	refused, cut int
	// last is when each server was asked last.
	last map[string]time.Time
}

func (s *site) crowd(clients int) *crowd {
	s.Helper()
	ctx, stop := context.WithCancel(s.T.Context())
	c := &crowd{port: s.proxy.Port(0), stop: stop, answers: map[string]int{}, last: map[string]time.Time{}}
	for i := range clients {
		c.wait.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				length := 50 * time.Millisecond // Most ask once.
				if n%4 == 0 {
					length = session
				}
				c.visit(ctx, length)
			}
		})
	}
	s.Cleanup(c.end)
	return c
}

// visit is one connection.
func (c *crowd) visit(ctx context.Context, length time.Duration) {
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", c.port), 5*time.Second)
	if err != nil {
		c.note(&c.refused)
		return
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	for asked, until := 0, time.Now().Add(length); time.Now().Before(until); asked++ {
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := io.WriteString(conn, "who?\n")
		var name string
		if err == nil {
			name, err = answers.ReadString('\n')
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil && asked == 0:
			c.note(&c.refused)
			time.Sleep(50 * time.Millisecond)
			return
		case err != nil:
			c.note(&c.cut)
			return
		}
		c.answered(strings.TrimSpace(name))
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

func (c *crowd) note(count *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
}

func (c *crowd) answered(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[server]++
	c.last[server] = time.Now()
}

// counts are what happened so far.
func (c *crowd) counts() (answers map[string]int, refused, cut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answers = map[string]int{}
	for server, n := range c.answers {
		answers[server] = n
	}
	return answers, c.refused, c.cut
}

// end has the clients go home.
func (c *crowd) end() {
	c.stop()
	c.wait.Wait()
}
