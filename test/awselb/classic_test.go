// SPDX-License-Identifier: Apache-2.0

package awselb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
)

func TestANodeLeavesClassicLoadBalancers(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Lag: 1_000_000_000})
	s.AddLoadBalancer("web", mine, theirs)
	s.AddLoadBalancer("api", theirs)
	s.AddLoadBalancer("other", mine)
	d := rememberingClassic(t, s, time, "web", "api")

	places := discover(t, d, node)
	want := []balancer.Membership{{Pool: "web", Member: mine}}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Drain(t.Context(), places))
	statuses, err := d.Status(t.Context(), places)
	succeed(t, err)
	if diff := cmp.Diff([]balancer.Status{{State: balancer.Drained, Others: aws.Int(1)}}, statuses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	time.pass(20_000_000_000)
	if got := states(t, d, places); got[0] != balancer.Drained {
		t.Errorf("the write is seen: %v", got)
	}
	succeed(t, d.Drain(t.Context(), places))
	if got := s.Instances("web"); !slices.Equal(got, []string{theirs}) {
		t.Errorf("%v", got)
	}
	succeed(t, d.Restore(t.Context(), places))
	time.pass(20_000_000_000)
	if got := states(t, d, places); got[0] != balancer.Attached || len(s.Instances("other")) != 1 {
		t.Errorf("%v", got)
	}
}

// TestANameThatNobodyHas has a misspelt name: it must not count as a load balancer without members, whatever the Node.
func TestANameThatNobodyHas(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	s.AddLoadBalancer("web", mine)
	hybrid := balancer.Node{Name: "box", ProviderID: "libvirt:///" + mine, Addresses: node.Addresses}
	d := classic(t, s, "wbe", "web", "api")
	want := `spec.classicELB.names: load balancer "wbe" does not exist in eu-central-1: correct it, or take it off the list
spec.classicELB.names: load balancer "api" does not exist in eu-central-1: correct it, or take it off the list`
	for members, n := range []balancer.Node{hybrid, node} {
		if found, err := d.Discover(t.Context(), n); len(found) != members || fmt.Sprint(err) != want {
			t.Errorf("%s: %v, %v", n.ProviderID, found, err)
		}
	}
	if found := discover(t, classic(t, s, "web"), hybrid); len(found) != 0 {
		t.Errorf("a machine of another cloud is no instance: %v", found)
	}
	s.Allow("RegisterTargets")
	if found, err := classic(t, s, "web").Discover(t.Context(), hybrid); err == nil || !strings.Contains(err.Error(), "allow elasticloadbalancing:DescribeLoadBalancers") {
		t.Errorf("nobody knows: %v, %v", found, err)
	}
}

func TestAClassicLoadBalancerIsDeletedOnTheWay(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	s.AddLoadBalancer("gone", mine)
	s.AddLoadBalancer("stays", mine)
	d := classic(t, s)
	places := discover(t, d, node)
	s.DeleteLoadBalancer("gone")
	if diff := cmp.Diff([]balancer.State{balancer.Absent, balancer.Attached}, states(t, d, places)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Drain(t.Context(), places))
	if diff := cmp.Diff([]balancer.State{balancer.Absent, balancer.Drained}, states(t, d, places)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Restore(t.Context(), places))
	if got := s.Instances("stays"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestClassicLoadBalancersOfManyPages(t *testing.T) {
	s := awselb.Start(t, awselb.Options{PageSize: 20})
	for n := range 250 {
		s.AddLoadBalancer(fmt.Sprint("balancer-", n), theirs)
	}
	s.AddLoadBalancer("last", theirs, mine)
	d := classic(t, s)
	if found := discover(t, d, node); len(found) != 1 || found[0].Pool != "last" {
		t.Errorf("%v", found)
	}
	if calls := awselb.Count(s.Calls()); calls["DescribeLoadBalancers"] != 13 {
		t.Errorf("%v", calls)
	}
	if found, err := d.Discover(t.Context(), balancer.Node{Name: "box", Addresses: node.Addresses}); len(found) != 0 || !errors.Is(err, balancer.ErrNoIdentity) || !strings.Contains(err.Error(), `"box"`) {
		t.Errorf("%v, %v", found, err)
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("nobody is asked for a Node of which no instance is known: %v", calls)
	}
}

func TestAClassicLoadBalancerIsThrottled(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now})
	s.AddLoadBalancer("web", mine)
	d := classic(t, s, "web")
	places := discover(t, d, node)
	s.Fail("DescribeLoadBalancers", "Throttling", "Throttling")
	statuses, err := d.Status(t.Context(), places)
	if !errors.Is(err, balancer.ErrThrottled) || statuses[0].State != balancer.Unknown {
		t.Errorf("%v, %v", statuses, err)
	}
	s.Fail("DeregisterInstancesFromLoadBalancer", "Throttling", "Throttling")
	if throttled := leave(t, d, places, func() { time.pass(d.Every()) }); throttled != 1 {
		t.Errorf("throttled %d times", throttled)
	}
}

// TestTheSevenActionsSuffice runs both drivers with all actions, and then without one of them at a time: the error must
// name it.
func TestTheSevenActionsSuffice(t *testing.T) {
	seven := []string{
		"DescribeLoadBalancers", "RegisterInstancesWithLoadBalancer", "DeregisterInstancesFromLoadBalancer",
		"DescribeTargetGroups", "DescribeTargetHealth", "RegisterTargets", "DeregisterTargets",
	}
	s := awselb.Start(t, awselb.Options{Allowed: seven, Delay: time.Second})
	group := web(s)
	s.AddLoadBalancer("web", mine)
	do := func() error {
		var failures []error
		for driver, places := range map[balancer.Driver][]balancer.Membership{
			targetGroups(t, s): {{Pool: group, Member: mine, Port: 80}},
			classic(t, s):      {{Pool: "web", Member: mine}},
		} {
			_, discovered := driver.Discover(t.Context(), node)
			_, seen := driver.Status(t.Context(), places)
			failures = append(failures, discovered, seen, driver.Drain(t.Context(), places), driver.Restore(t.Context(), places))
		}
		return errors.Join(failures...)
	}
	succeed(t, do())
	used := awselb.Count(s.Calls())
	for _, action := range seven {
		if used[action] == 0 {
			t.Errorf("%s is granted for nothing", action)
		}
		s.Allow(slices.DeleteFunc(slices.Clone(seven), func(a string) bool { return a == action })...)
		if err := do(); err == nil || !strings.Contains(err.Error(), "allow elasticloadbalancing:"+action+" in the IAM policy") {
			t.Errorf("without %s: %v", action, err)
		}
	}
	if len(used) != len(seven) {
		t.Errorf("other actions are called: %v", used)
	}
}

// TestALongAnswerIsReadToItsEnd, although it begins before the SDK has sent the whole request.
func TestALongAnswerIsReadToItsEnd(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	for n := range 300 {
		s.AddLoadBalancer(fmt.Sprint("balancer-", n), mine)
	}
	d := classic(t, s)
	for range 50 {
		if found := discover(t, d, node); len(found) != 300 {
			t.Fatalf("%d of 300", len(found))
		}
	}
	if calls := s.Calls(); len(calls) != 50 {
		t.Errorf("%d calls for 50 looks", len(calls))
	}
}
