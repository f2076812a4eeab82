// SPDX-License-Identifier: Apache-2.0

package order_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/podorder/order"
)

// cluster is a Node with its pods, and their history.
type cluster struct {
	now    time.Time
	pods   []order.Pod
	record *string
	// tolerates are the names of pods that a DaemonSet creates again at once.
	tolerates map[string]bool
	// stuck are the names of pods that never end.
	stuck map[string]bool
	// wanted are the priorities of the pods that must be stopped, by UID.
	wanted map[string]int64
	born   int
	// deleted are the priorities of the groups, in order.
	deleted []int64
}

func drawCluster(t *rapid.T) *cluster {
	c := &cluster{now: noon, tolerates: map[string]bool{}, stuck: map[string]bool{}, wanted: map[string]int64{}}
	texts := rapid.SampledFrom([]string{"", "-5", "0", "1", "2", "10", "10", "high", "1.5"})
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		p := pod(fmt.Sprint("p", i), texts.Draw(t, "priority"))
		c.tolerates[p.Name] = rapid.Bool().Draw(t, "tolerates")
		c.stuck[p.Name] = rapid.IntRange(0, 9).Draw(t, "stuck") == 0
		if rapid.IntRange(0, 4).Draw(t, "going") == 0 {
			p.Until = c.now.Add(time.Second)
		}
		c.pods = append(c.pods, p)
	}
	return c
}

// pass carries out a decision as the step does, unless the manager crashes in between.
func (c *cluster) pass(t *rapid.T, crashes func() bool) order.Decision {
	d := order.Decide(order.Facts{Pods: c.pods, Record: c.record, Now: c.now})
	if d.Record != nil {
		if crashes() {
			return d
		}
		c.begin(d.Record)
	}
	for _, p := range d.Delete {
		if crashes() {
			return d
		}
		c.check(t, p)
		i := slices.IndexFunc(c.pods, func(q order.Pod) bool { return q.UID == p.UID })
		c.pods[i].Until = c.now.Add(time.Second)
	}
	return d
}

// begin records the pods that must be stopped: the existing ones.
func (c *cluster) begin(record *string) {
	c.record = record
	for _, p := range c.pods {
		if p.Priority == nil {
			continue
		}
		if n, err := strconv.ParseInt(*p.Priority, 10, 64); err == nil {
			c.wanted[p.UID] = n
		}
	}
}

// check asserts the properties of every deleted pod.
func (c *cluster) check(t *rapid.T, p order.Pod) {
	priority, wanted := c.wanted[p.UID]
	if !wanted {
		t.Fatalf("%s, %s, is nobody's to stop", p.Name, p.UID)
	}
	for _, q := range c.pods {
		if n, ok := c.wanted[q.UID]; ok && n > priority {
			t.Fatalf("%s of %d is deleted while %s of %d is there", p.Name, priority, q.Name, n)
		}
	}
	if n := len(c.deleted); n > 0 && c.deleted[n-1] < priority {
		t.Fatalf("%d after %v", priority, c.deleted)
	}
	c.deleted = append(c.deleted, priority)
}

// kubelet ends some of the terminating pods, and DaemonSets create them again.
func (c *cluster) kubelet(t *rapid.T, all bool) {
	c.now = c.now.Add(2 * time.Second)
	for i, p := range slices.Backward(slices.Clone(c.pods)) {
		if p.Until.IsZero() || c.stuck[p.Name] || !all && rapid.Bool().Draw(t, "slow") {
			continue
		}
		c.pods = slices.Delete(c.pods, i, i+1)
		if c.tolerates[p.Name] {
			c.born++
			p.UID, p.Until = fmt.Sprintf("%s-%d", p.Name, c.born), time.Time{}
			c.pods = append(c.pods, p)
		}
	}
}

// TestGroupsLeaveInOrder: with crashes, new pods, invalid priorities and stuck pods.
func TestGroupsLeaveInOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		for range 20 {
			c.pass(t, func() bool { return rapid.IntRange(0, 4).Draw(t, "crash") == 0 })
			c.kubelet(t, false)
		}
		var d order.Decision
		for range 50 {
			if d = c.pass(t, func() bool { return false }); d.Done() {
				break
			}
			c.kubelet(t, true)
		}
		if !d.Done() && !slices.ContainsFunc(d.Wait, func(p order.Pod) bool { return c.stuck[p.Name] }) {
			t.Fatalf("never ends: %+v", d)
		}
		if d.Done() {
			for _, p := range c.pods {
				if n, ok := c.wanted[p.UID]; ok {
					t.Fatalf("%s of %d is still there", p.Name, n)
				}
			}
		}
	})
}

// TestTheOrderOfAListDoesNotMatter: the order of the list and a second decision change nothing.
func TestTheOrderOfAListDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCluster(t)
		want := order.Decide(order.Facts{Pods: c.pods, Now: c.now})
		pods := rapid.Permutation(c.pods).Draw(t, "pods")
		got := order.Decide(order.Facts{Pods: pods, Now: c.now})
		if fmt.Sprint(want.Notes, names(want.Delete), names(want.Wait)) != fmt.Sprint(got.Notes, names(got.Delete), names(got.Wait)) {
			t.Fatalf("%+v\n%+v", want, got)
		}
		if !slices.IsSortedFunc(pods, func(a, b order.Pod) int { return cmp.Compare(a.Name, b.Name) }) && want.Record != nil && *want.Record != *got.Record {
			t.Fatalf("%s, %s", *want.Record, *got.Record)
		}
	})
}
