// SPDX-License-Identifier: Apache-2.0

package detach

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/haproxy"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	patience = 3 * time.Minute
	// session is how long a client keeps a connection.
	session = 4 * time.Second
)

// farm is a Cluster with machines and its own control plane: controllers of a Cluster treat all Nodes in it as theirs.
type farm struct {
	*testing.T
	*specs.Cluster
	lab      *plane.Workload
	machines []*v1alpha1.ScheduledMachine
	// addresses are the addresses of the machines. They must be unique.
	addresses []string
}

// farms is the number of farms so far.
var farms atomic.Int32

// newFarm creates machines, and waits until they run.
func newFarm(t *testing.T, name string, machines int) *farm {
	t.Helper()
	return newFarmOf(t, name, "127.0", machines, plane.ClusterOptions{NoScheduler: true})
}

// newFarmOf creates machines whose addresses start with prefix.
func newFarmOf(t *testing.T, name, prefix string, machines int, o plane.ClusterOptions) *farm {
	t.Helper()
	f := &farm{T: t}
	o.AuditBodies = system.JudgedInWorkload
	lab, err := shared.Manage(f.step(), f.controlPlane(name, o), plane.WorkloadOptions{Namespace: name, Name: name})
	f.must(err)
	f.must(lab.EnsureNamespace(f.step(), name))
	f.lab = lab
	f.Cluster = &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: name, Image: "work:1", Patience: patience,
	}
	t.Cleanup(func() { f.close(o) })
	net := farms.Add(1)
	for i := range machines {
		address := fmt.Sprintf("%s.%d.%d", prefix, net, 11+i)
		f.addresses = append(f.addresses, address)
		sm := system.ScheduledMachine(lab, fmt.Sprintf("%s-%d", name, i), infrav1.PlaneMachineSpec{Address: address})
		f.machines = append(f.machines, f.Start(sm))
		t.Cleanup(func() { f.remove(sm) })
	}
	for _, sm := range f.machines {
		f.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
	return f
}

// idle are control planes without a scheduler whose tests have ended. Each start takes 7 s of a core.
var idle = make(chan *plane.Cluster, maxParallel)

// controlPlane returns a control plane that no other test uses.
func (f *farm) controlPlane(name string, o plane.ClusterOptions) *plane.Cluster {
	f.Helper()
	if o.NoScheduler {
		select {
		case c := <-idle:
			return c
		default:
		}
	}
	c, err := shared.NewCluster(f.step(), name, o)
	f.must(err)
	return c
}

// close deletes the Cluster. Its control plane is reused by the next test, or ends.
func (f *farm) close(o plane.ClusterOptions) {
	f.remove(&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.lab.Key.Name}})
	if o.NoScheduler && !f.Failed() {
		idle <- f.lab.Cluster
	} else {
		f.must(f.lab.Stop())
	}
}

// site is two machines with a web server each, HAProxy in front of them, and its clients.
type site struct {
	*farm
	proxy   *haproxy.Process
	servers []*webServer
}

// newSite starts everything.
func newSite(t *testing.T, name string) *site {
	t.Helper()
	proxy, err := haproxy.New()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	s := &site{farm: newFarm(t, name, 2), proxy: proxy}
	s.must(err)
	for i, address := range s.addresses {
		s.servers = append(s.servers, newWebServer(t, address))
		s.serve(i)
	}
	t.Cleanup(func() { _ = proxy.Stop() })
	s.must(proxy.Start(s.step(), s.config()))
	return s
}

// config returns a configuration that alternates connections between the two servers.
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
	watcher, err := s.Workload.Watch(s.Context(), &corev1.PodList{}, client.InNamespace(pod.Namespace), client.MatchingLabels{"app": pod.Name})
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

// balance creates a LoadBalancer for the HAProxy.
func (s *site) balance(change func(*expv1.LoadBalancer)) *expv1.LoadBalancer {
	s.Helper()
	return s.balanced(func(lb *expv1.LoadBalancer) {
		lb.Spec.HAProxy = &expv1.HAProxyBalancer{Endpoints: []string{s.proxy.Unix}, Backends: []string{"web"}}
		if change != nil {
			change(lb)
		}
	})
}

// balanced creates a LoadBalancer.
func (f *farm) balanced(describe func(*expv1.LoadBalancer)) *expv1.LoadBalancer {
	f.Helper()
	lb := &expv1.LoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "edge"}}
	lb.Spec.ClusterName = f.lab.Key.Name
	describe(lb)
	f.must(f.Management.Create(f.step(), lb))
	f.Cleanup(func() { f.remove(lb) })
	return lb
}

// remove deletes an object after the test, and waits until it is gone.
func (f *farm) remove(obj client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.Management.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		f.Error(err)
	}
	if err := await.Gone(ctx, f.Management, obj); err != nil {
		f.Error(err)
	}
}

// step returns a context with the timeout of one step.
func (f *farm) step() context.Context {
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	f.Cleanup(cancel)
	return ctx
}

func (f *farm) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// until waits until cond returns nil.
func (f *farm) until(cond func(context.Context) error) {
	f.Helper()
	f.must(await.Until(f.step(), cond))
}

// machine returns the Machine of the i-th ScheduledMachine.
func (f *farm) machine(i int) *clusterv1.Machine {
	f.Helper()
	m := &clusterv1.Machine{}
	f.must(f.Management.Get(f.step(), client.ObjectKey{Namespace: f.Namespace, Name: f.machines[i].Name + "-machine"}, m))
	return m
}

// waitGone waits until a Machine is gone. It returns all messages of its condition ReadyForDeletion.
func (f *farm) waitGone(m *clusterv1.Machine) string {
	f.Helper()
	var said []string
	f.until(func(ctx context.Context) error {
		now := &clusterv1.Machine{}
		if err := f.Management.Get(ctx, client.ObjectKeyFromObject(m), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		if now.UID != m.UID {
			return nil
		}
		if c := conditions.Get(now, v1alpha1.ReadyForDeletionCondition); c != nil && c.Message != "" && !slices.Contains(said, c.Message) {
			said = append(said, c.Message)
		}
		return errors.New("the Machine is still there")
	})
	return strings.Join(said, "\n")
}

// waitHeld waits until a Machine's condition ReadyForDeletion is false with a message that contains why.
func (f *farm) waitHeld(m *clusterv1.Machine, why string) {
	f.Helper()
	f.must(await.Object(f.step(), f.Management, m, func() error {
		c := conditions.Get(m, v1alpha1.ReadyForDeletionCondition)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, why) {
			return fmt.Errorf("it is not held by %q: %v", why, c)
		}
		return nil
	}))
}

// waitEvent waits for an event about an object of that name.
func (f *farm) waitEvent(name, reason string) {
	f.Helper()
	f.until(func(ctx context.Context) error {
		events := &eventsv1.EventList{}
		if err := f.Management.List(ctx, events, client.InNamespace(f.Namespace), client.MatchingFields{"regarding.name": name, "reason": reason}); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return fmt.Errorf("no event %s about %s", reason, name)
		}
		return nil
	})
}

// wantNoAttachment waits until the NodeAttachment of the first machine is gone.
func (f *farm) wantNoAttachment() {
	f.Helper()
	f.until(func(ctx context.Context) error {
		list := &expv1.NodeAttachmentList{}
		if err := f.Management.List(ctx, list, client.InNamespace(f.Namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Spec.NodeName == f.machines[0].Name+"-machine" {
				return fmt.Errorf("NodeAttachment %+v", list.Items[i])
			}
		}
		return nil
	})
}

// state returns the state of a server in HAProxy.
func (s *site) state(ctx context.Context, server string) (string, error) {
	got, err := s.proxy.Command(ctx, "show servers state web")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(got) {
		if fields := strings.Fields(line); len(fields) > 6 && fields[3] == server {
			if fields[6] == "8" { // Bit 3 of the administrative state is a forced drain.
				return "drain", nil
			}
			return "ready", nil
		}
	}
	return "", fmt.Errorf("no server %s: %q", server, got)
}

// wantState waits until a server has the state in HAProxy.
func (s *site) wantState(server, want string) {
	s.Helper()
	s.until(func(ctx context.Context) error {
		got, err := s.state(ctx, server)
		if err == nil && got != want {
			err = fmt.Errorf("server %s is %s, not %s", server, got, want)
		}
		return err
	})
}

// webServer answers each line with its name.
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

// stop ends it as a killed process: its connections end, too.
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

// crowd is a set of clients. Each opens a connection, sends a request every 50 ms for a while, closes it, and opens
// another.
type crowd struct {
	port int
	wait sync.WaitGroup
	stop context.CancelFunc

	mu sync.Mutex
	// answers counts the answers of each server. refused counts connections that were not opened, and cut counts
	// connections that ended early.
	answers      map[string]int
	refused, cut int
	// last is the time of the last answer of each server.
	last map[string]time.Time
}

func (s *site) crowd(clients int) *crowd {
	s.Helper()
	ctx, stop := context.WithCancel(s.Context())
	c := &crowd{port: s.proxy.Port(0), stop: stop, answers: map[string]int{}, last: map[string]time.Time{}}
	for i := range clients {
		c.wait.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				length := 50 * time.Millisecond // Most send one request.
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

// visit runs one connection.
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

// counts returns the results so far.
func (c *crowd) counts() (answers map[string]int, refused, cut int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.answers), c.refused, c.cut
}

// end stops the clients.
func (c *crowd) end() {
	c.stop()
	c.wait.Wait()
}
