// SPDX-License-Identifier: Apache-2.0

package nodemark_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/kubeproxy"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodelabel"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/nodemark"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/plan"
)

const wait = 30 * time.Second

var (
	start = time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	box   = []balancer.Membership{{Member: "box"}}
)

// cluster is the Nodes of an API server. Its errors apply to the next call. With a lost answer, the write was carried
// out.
type cluster struct {
	nodes                   map[string]*corev1.Node
	getErr, putErr, lostErr error
	// cached is the content of a late cache, nil if the cache is current.
	cached                     map[string]*corev1.Node
	gets, lists, edits, writes int
}

func newCluster(names ...string) *cluster {
	c := &cluster{nodes: map[string]*corev1.Node{}}
	for _, name := range names {
		c.nodes[name] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
	}
	return c
}

func (c *cluster) Get(_ context.Context, name string) (*corev1.Node, error) {
	c.gets++
	if c.getErr != nil {
		return nil, c.getErr
	}
	node, found := c.nodes[name]
	if !found {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return node.DeepCopy(), nil
}

func (c *cluster) List(context.Context) ([]corev1.Node, error) {
	c.lists++
	if c.getErr != nil {
		return nil, c.getErr
	}
	nodes := c.nodes
	if c.cached != nil {
		nodes = c.cached
	}
	var all []corev1.Node
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		all = append(all, *nodes[name].DeepCopy())
	}
	return all, nil
}

// fallsBehind freezes the cache at the present state.
func (c *cluster) fallsBehind() { c.cached = maps.Clone(c.nodes) }

func (c *cluster) catchesUp() { c.cached = nil }

func (c *cluster) Edit(_ context.Context, node *corev1.Node, change func(*corev1.Node)) error {
	c.edits++
	if c.putErr != nil {
		return c.putErr
	}
	if c.nodes[node.Name].ResourceVersion != node.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("nodes"), node.Name, nil)
	}
	c.change(node.Name, change)
	c.writes++
	return c.lostErr
}

// change is a write of another party.
func (c *cluster) change(name string, change func(*corev1.Node)) {
	node := c.nodes[name].DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	change(node)
	version, _ := strconv.Atoi(node.ResourceVersion)
	node.ResourceVersion = strconv.Itoa(version + 1)
	c.nodes[name] = node
}

// kind is a Driver, and the writes of others to the same mark.
type kind struct {
	driver     func(nodemark.Nodes, *clocktesting.FakePassiveClock) balancer.Driver
	annotation string
	putOn      func(*corev1.Node)
	takeOff    func(*corev1.Node)
	// marks returns all marks of a Node, of any party.
	marks func(*corev1.Node) []string
}

var kinds = map[string]kind{
	"label": {
		driver: func(n nodemark.Nodes, c *clocktesting.FakePassiveClock) balancer.Driver {
			return nodelabel.New(expv1.LabelBalancer{WaitSeconds: ptr.To[int32](30)}, n, c)
		},
		annotation: expv1.NodeExcludedAnnotation,
		putOn: func(n *corev1.Node) {
			n.Labels[corev1.LabelNodeExcludeBalancers] = "true"
			if _, stale := n.Annotations[expv1.NodeExcludedAnnotation]; stale {
				n.Labels[corev1.LabelNodeExcludeBalancers] = "" // "true" has the same effect as the value of 5-Spot
			}
		},
		takeOff: func(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) },
		marks: func(n *corev1.Node) []string {
			if v, found := n.Labels[corev1.LabelNodeExcludeBalancers]; found {
				return []string{v}
			}
			return nil
		},
	},
	"kubeProxy": {
		driver: func(n nodemark.Nodes, c *clocktesting.FakePassiveClock) balancer.Driver {
			return kubeproxy.New(expv1.KubeProxyBalancer{WaitSeconds: ptr.To[int32](30)}, n, c)
		},
		annotation: expv1.NodeFailingHealthCheckAnnotation,
		putOn: func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: plan.AutoscalerTaint, Value: "1772438400", Effect: corev1.TaintEffectNoSchedule})
		},
		takeOff: func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == plan.AutoscalerTaint })
		},
		marks: func(n *corev1.Node) (all []string) {
			for _, t := range n.Spec.Taints {
				if t.Key == plan.AutoscalerTaint {
					all = append(all, t.Value)
				}
			}
			return all
		},
	},
}

func wantState(t rapid.TB, d balancer.Driver, want balancer.State) {
	t.Helper()
	statuses, err := d.Status(context.Background(), box)
	if err != nil || len(statuses) != 1 || statuses[0].State != want || statuses[0].Connections != nil {
		t.Fatalf("Status = %+v, %v, want %s", statuses, err, want)
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBadInstants: an invalid time never makes a Node drained, and the next Drain writes a valid one.
func TestBadInstants(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			for _, bad := range []string{"", "yesterday", start.Add(time.Hour).Format(time.RFC3339)} {
				c := newCluster("box")
				clock := clocktesting.NewFakePassiveClock(start)
				d := k.driver(c, clock)
				must(t, d.Drain(t.Context(), box))
				c.change("box", func(n *corev1.Node) { n.Annotations[k.annotation] = bad })
				clock.SetTime(start.Add(wait))
				wantState(t, d, balancer.Draining)
				must(t, d.Drain(t.Context(), box))
				wantState(t, d, balancer.Draining)
				clock.SetTime(start.Add(2 * wait))
				wantState(t, d, balancer.Drained)
			}
		})
	}
}

func TestOthers(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCluster("box", "good", "marked", "ours", "unready", "unknown", "going", "new", "control-plane")
			c.change("marked", k.putOn)
			// kubeadm excludes these from all load balancers.
			c.change("control-plane", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
			c.change("unready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
			c.change("unknown", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
			c.change("going", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: start} })
			c.change("new", func(n *corev1.Node) { n.Status.Conditions = nil })
			d := k.driver(c, clocktesting.NewFakePassiveClock(start))
			must(t, d.Drain(t.Context(), []balancer.Membership{{Member: "ours"}}))
			got, err := d.Status(t.Context(), []balancer.Membership{{Member: "box"}, {Member: "ours"}, {Member: "gone"}})
			want := []balancer.Status{
				{State: balancer.Attached, Others: new(1)},
				{State: balancer.Draining, Others: new(2)},
				{State: balancer.Absent, Others: new(2)},
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("Status: %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestStatusOfManyNodesIsOneList: a round has ten seconds, also for hundreds of leaving machines and a slow API server.
func TestStatusOfManyNodesIsOneList(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			var names []string
			var places []balancer.Membership
			for i := range 300 {
				names = append(names, "n"+strconv.Itoa(i))
				places = append(places, balancer.Membership{Member: names[i]})
			}
			c := newCluster(names...)
			d := k.driver(c, clocktesting.NewFakePassiveClock(start))
			look := func(want balancer.State, others int) {
				t.Helper()
				c.gets, c.lists = 0, 0
				statuses, err := d.Status(t.Context(), places)
				must(t, err)
				for _, s := range statuses {
					if s.State != want || *s.Others != others {
						t.Fatalf("%s with %d others, want %s with %d", s.State, *s.Others, want, others)
					}
				}
				if c.gets != 0 || c.lists != 1 {
					t.Errorf("%d live reads and %d lists, want one list", c.gets, c.lists)
				}
			}
			look(balancer.Attached, 299)
			must(t, d.Drain(t.Context(), places))
			look(balancer.Draining, 0)
			must(t, d.Restore(t.Context(), places))
			look(balancer.Attached, 299)
		})
	}
}

// TestALateCache: a late cache does not hide 5-Spot's writes on any Node, also if the result of a write is unknown.
func TestALateCache(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCluster("box", "other")
			clock := clocktesting.NewFakePassiveClock(start)
			d := k.driver(c, clock)
			status := func(member string, want balancer.State, others int) {
				t.Helper()
				got, err := d.Status(t.Context(), []balancer.Membership{{Member: member}})
				must(t, err)
				if diff := cmp.Diff([]balancer.Status{{State: want, Others: &others}}, got); diff != "" {
					t.Errorf("Status of %s (-want +got):\n%s", member, diff)
				}
			}

			c.fallsBehind()
			c.lostErr = errors.New("no answer")
			if err := d.Drain(t.Context(), box); !errors.Is(err, c.lostErr) {
				t.Fatal(err)
			}
			c.lostErr = nil
			status("box", balancer.Draining, 1) // Its membership stays on record.
			status("other", balancer.Attached, 0)

			c.catchesUp()
			clock.SetTime(start.Add(time.Hour))
			c.gets = 0
			status("box", balancer.Drained, 1)
			if c.gets != 0 {
				t.Errorf("%d live reads of what the cache shows", c.gets)
			}

			c.fallsBehind()
			must(t, d.Restore(t.Context(), box))
			status("box", balancer.Attached, 1)
			must(t, d.Drain(t.Context(), box))
			status("box", balancer.Draining, 1) // An earlier mark does not end the wait.

			delete(c.nodes, "box")
			status("box", balancer.Absent, 1)
		})
	}
}

// TestUnknownIsNotAbsent: a Node that cannot be read is an error. A Node that does not exist is not.
func TestUnknownIsNotAbsent(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			c := newCluster("box")
			d := k.driver(c, clocktesting.NewFakePassiveClock(start))
			gone := []balancer.Membership{{Member: "gone"}}
			must(t, errors.Join(d.Drain(t.Context(), gone), d.Restore(t.Context(), gone)))
			if m, err := d.Discover(t.Context(), balancer.Node{Name: "gone"}); err != nil || len(m) != 0 {
				t.Errorf("Discover of a Node that is gone = %v, %v", m, err)
			}
			m, err := d.Discover(t.Context(), balancer.Node{Name: "box"})
			if diff := cmp.Diff(box, m); err != nil || diff != "" {
				t.Errorf("Discover: %v (-want +got):\n%s", err, diff)
			}

			c.putErr = errors.New("cannot be written")
			if err := d.Drain(t.Context(), box); !errors.Is(err, c.putErr) {
				t.Errorf("Drain = %v, want %v", err, c.putErr)
			}
			c.getErr = errors.New("cannot be read")
			_, discoverErr := d.Discover(t.Context(), balancer.Node{Name: "box"})
			_, statusErr := d.Status(t.Context(), box)
			for _, err := range []error{discoverErr, statusErr, d.Drain(t.Context(), box), d.Restore(t.Context(), box)} {
				if !errors.Is(err, c.getErr) {
					t.Errorf("error %v, want %v", err, c.getErr)
				}
			}
		})
	}
}

// TestOwnership: 5-Spot and others set and remove marks in any order, with restarts, failed writes and late caches.
// Marks of others stay, and 5-Spot's are removed.
func TestOwnership(t *testing.T) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := newCluster("box", "other")
				clock := clocktesting.NewFakePassiveClock(start)
				d := k.driver(c, clock)
				owner, since := nodemark.Unmarked, time.Time{}
				// hidden means that the cache does not show the writes of others. edits is the number of 5-Spot's
				// writes before the cache froze.
				hidden, edits := false, 0
				t.Repeat(map[string]func(*rapid.T){
					"drain": func(t *rapid.T) {
						must(t, d.Drain(context.Background(), box))
						if owner == nodemark.Unmarked {
							owner, since = nodemark.MarkedByUs, clock.Now()
						}
						writes := c.writes
						must(t, d.Drain(context.Background(), box))
						if c.writes != writes {
							t.Fatal("a second Drain writes")
						}
					},
					"restore": func(t *rapid.T) {
						must(t, d.Restore(context.Background(), box))
						if owner == nodemark.MarkedByUs {
							owner = nodemark.Unmarked
						}
						if at, found := c.nodes["box"].Annotations[k.annotation]; found {
							t.Fatalf("annotation of %s is left", at)
						}
						writes := c.writes
						must(t, d.Restore(context.Background(), box))
						if c.writes != writes {
							t.Fatal("a second Restore writes")
						}
					},
					"a write fails": func(*rapid.T) {
						c.putErr = errors.New("refused")
						_ = d.Drain(context.Background(), box)
						_ = d.Restore(context.Background(), box)
						c.putErr = nil
					},
					"others put on": func(t *rapid.T) {
						if owner != nodemark.Unmarked {
							t.Skip("it is on")
						}
						c.change("box", k.putOn)
						owner, hidden = nodemark.MarkedByOthers, c.cached != nil
					},
					"others take off": func(*rapid.T) {
						c.change("box", k.takeOff)
						owner, hidden = nodemark.Unmarked, c.cached != nil
					},
					"the cache falls behind": func(*rapid.T) {
						c.fallsBehind()
						hidden, edits = false, c.edits
					},
					"the cache catches up": func(*rapid.T) {
						c.catchesUp()
						hidden = false
					},
					"restart": func(*rapid.T) {
						d = k.driver(c, clock)
						c.catchesUp()
						hidden = false
					},
					"time passes": func(t *rapid.T) {
						clock.SetTime(clock.Now().Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "s")) * time.Second))
					},
					"": func(t *rapid.T) {
						want, marks := balancer.Attached, 0
						switch {
						case owner == nodemark.MarkedByOthers:
							want, marks = balancer.Disabled, 1
						case owner == nodemark.MarkedByUs && clock.Now().Sub(since) < wait:
							want, marks = balancer.Draining, 1
						case owner == nodemark.MarkedByUs:
							want, marks = balancer.Drained, 1
						}
						if !hidden || c.edits > edits { // 5-Spot's writes are read live.
							wantState(t, d, want)
						}
						if got := k.marks(c.nodes["box"]); len(got) != marks {
							t.Fatalf("marks %q, want %d", got, marks)
						}
					},
				})
			})
		})
	}
}
