// SPDX-License-Identifier: Apache-2.0

package awselb_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
)

const delay = 300 * time.Second

// web creates a group in which the Node has two ports, and another machine one.
func web(s *awselb.Server) string {
	arn := s.AddTargetGroup("web", types.TargetTypeEnumInstance, 80)
	for _, d := range []types.TargetDescription{at(mine, 0), at(mine, 8080), at(theirs, 0)} {
		s.AddTarget(arn, d)
	}
	return arn
}

// diff compares targets in any order.
func diff(want, got []types.TargetDescription) string {
	return gocmp.Diff(want, got, cmpopts.IgnoreUnexported(types.TargetDescription{}), cmpopts.EquateEmpty(),
		cmpopts.SortSlices(func(a, b types.TargetDescription) int {
			return cmp.Or(cmp.Compare(*a.Id, *b.Id), cmp.Compare(aws.ToInt32(a.Port), aws.ToInt32(b.Port)))
		}))
}

func TestANodeLeavesAndComesBack(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay, Warmup: 10_000_000_000})
	group := web(s)
	before := s.Targets(group)
	d := targetGroups(t, s, group)

	places := discover(t, d, node)
	want := []balancer.Membership{{Pool: group, Member: mine, Port: 80}, {Pool: group, Member: mine, Port: 8080}}
	if diff := gocmp.Diff(want, places); diff != "" {
		t.Fatalf("both ports are places (-want +got):\n%s", diff)
	}
	statuses, err := d.Status(t.Context(), places)
	succeed(t, err)
	if diff := gocmp.Diff([]balancer.Status{{State: balancer.Attached, Others: aws.Int(2)}, {State: balancer.Attached, Others: aws.Int(2)}}, statuses); diff != "" {
		t.Fatalf("each port is a member (-want +got):\n%s", diff)
	}

	s.Calls()
	succeed(t, d.Drain(t.Context(), places))
	if calls := awselb.Count(s.Calls()); calls["DeregisterTargets"] != 1 {
		t.Errorf("both ports are taken out in one call: %v", calls)
	}
	if got := states(t, d, places); got[0] != balancer.Draining || got[1] != balancer.Draining {
		t.Errorf("after the call: %v", got)
	}
	time.pass(delay - 1)
	if got := states(t, d, places); got[0] != balancer.Draining {
		t.Errorf("before the delay is over: %v", got)
	}
	time.pass(1)
	if got := states(t, d, places); got[0] != balancer.Drained || got[1] != balancer.Drained {
		t.Errorf("after the delay: %v", got)
	}
	if found := discover(t, d, node); len(found) != 0 {
		t.Errorf("there is no such target any more: %v", found)
	}

	s.Calls()
	succeed(t, d.Restore(t.Context(), places))
	if calls := awselb.Count(s.Calls()); calls["RegisterTargets"] != 1 || len(calls) != 1 {
		t.Errorf("both ports are put back in one call: %v", calls)
	}
	if got := states(t, d, places); got[0] != balancer.Attached || got[1] != balancer.Attached {
		t.Errorf("a target that is put back is Attached while it is initial: %v", got)
	}
	if diff := diff(before, s.Targets(group)); diff != "" {
		t.Errorf("the group is not as it was (-want +got):\n%s", diff)
	}
}

// TestATargetThatIsBackBeforeItsDelayIsOver cancels a departure during the drain.
func TestATargetThatIsBackBeforeItsDelayIsOver(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay})
	group := web(s)
	d := targetGroups(t, s, group)
	places := discover(t, d, node)
	succeed(t, d.Drain(t.Context(), places))
	time.pass(delay / 2)
	if found := discover(t, d, node); len(found) != 2 {
		t.Errorf("a target that drains is still a place: %v", found)
	}
	succeed(t, d.Restore(t.Context(), places))
	if got := states(t, d, places); got[0] != balancer.Attached {
		t.Error(got)
	}
}

// TestTargetsAreFoundByAddress has targets of type ip: in the VPC, outside of it, and IPv6 in another notation.
func TestTargetsAreFoundByAddress(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	group := s.AddTargetGroup("ip", types.TargetTypeEnumIp, 443)
	for _, d := range []types.TargetDescription{
		in("eu-central-1a", at("10.0.0.7", 0)), in("all", at("192.168.1.7", 8443)), in("all", at("2001:0db8:0::07", 0)),
		at("10.0.0.8", 0), in("all", at("127.0.0.1", 0)),
	} {
		s.AddTarget(group, d)
	}
	before := s.Targets(group)
	d := targetGroups(t, s, group)
	n := node
	n.ProviderID = "" // A missing instance ID is not an error.
	n.Addresses = append(slices.Clone(n.Addresses), "127.0.0.1", "fe80::1%eth0", "box.local", "")

	places := discover(t, d, n)
	want := []balancer.Membership{
		{Pool: group, Member: "10.0.0.7,zone=eu-central-1a", Port: 443, Persistent: true},
		{Pool: group, Member: "192.168.1.7,zone=all", Port: 8443, Persistent: true},
		{Pool: group, Member: "2001:0db8:0::07,zone=all", Port: 443, Persistent: true},
	}
	if diff := gocmp.Diff(want, places); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Drain(t.Context(), places))
	if got := states(t, d, places); slices.ContainsFunc(got, func(s balancer.State) bool { return s != balancer.Drained }) {
		t.Errorf("without a delay they are out at once: %v", got)
	}
	succeed(t, d.Restore(t.Context(), places))
	if diff := diff(before, s.Targets(group)); diff != "" {
		t.Errorf("an address outside of the VPC needs its zone (-want +got):\n%s", diff)
	}
}

func TestGroupsOfTheRegionAreFound(t *testing.T) {
	s := awselb.Start(t, awselb.Options{PageSize: 50})
	for n := range 249 {
		arn := s.AddTargetGroup(fmt.Sprint("group-", n), types.TargetTypeEnumInstance, 80)
		s.AddTarget(arn, at(theirs, 0))
	}
	s.AddTargetGroup("function", types.TargetTypeEnumLambda, 0)
	s.AddTargetGroup("alb", types.TargetTypeEnumAlb, 80)
	addresses := s.AddTargetGroup("ip", types.TargetTypeEnumIp, 80)
	s.AddTarget(addresses, at("10.0.0.7", 0))
	d := targetGroups(t, s)
	if found := discover(t, d, node); len(found) != 1 {
		t.Errorf("%v", found)
	}
	group := web(s) // created after the Node
	s.Calls()
	if found := discover(t, d, node); len(found) != 3 || found[1].Pool != group {
		t.Errorf("the group on the last page is not found: %v", found)
	}
	calls := awselb.Count(s.Calls())
	if diff := gocmp.Diff(map[string]int{"DescribeTargetGroups": 6, "DescribeTargetHealth": 251}, calls); diff != "" {
		t.Errorf("a look costs a call for a page and one for a group (-want +got):\n%s", diff)
	}
	if found := discover(t, d, balancer.Node{Addresses: node.Addresses}); len(found) != 1 {
		t.Errorf("%v", found)
	}
	if calls := awselb.Count(s.Calls()); calls["DescribeTargetHealth"] != 1 {
		t.Errorf("a Node without an instance ID is looked for where it can be: %v", calls)
	}
	if found, err := d.Discover(t.Context(), balancer.Node{Name: "box", ProviderID: "libvirt:///i-0123456789abcdef0"}); len(found) != 0 || !errors.Is(err, balancer.ErrNoIdentity) || !strings.Contains(err.Error(), `"box"`) {
		t.Errorf("%v, %v", found, err)
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("nobody is asked for a Node that can be no target: %v", calls)
	}
}

func TestWhatHealthMeans(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	group := s.AddTargetGroup("web", types.TargetTypeEnumInstance, 80)
	s.AddTarget(group, at(mine, 0))
	s.AddTarget(group, at(theirs, 0))
	s.AddTarget(group, at(theirs, 81))
	d := targetGroups(t, s, group)
	places := discover(t, d, node)
	for health, want := range map[types.TargetHealthStateEnum]struct {
		state  balancer.State
		others int
	}{
		types.TargetHealthStateEnumHealthy:           {balancer.Attached, 2},
		types.TargetHealthStateEnumUnavailable:       {balancer.Attached, 2},
		types.TargetHealthStateEnumInitial:           {balancer.Attached, 0},
		types.TargetHealthStateEnumUnhealthy:         {balancer.Attached, 0},
		types.TargetHealthStateEnumUnhealthyDraining: {balancer.Attached, 0},
		types.TargetHealthStateEnumDraining:          {balancer.Draining, 0},
		types.TargetHealthStateEnumUnused:            {balancer.Disabled, 0},
		"something.new":                              {balancer.Unknown, 0},
	} {
		s.SetHealth(group, mine, health)
		s.SetHealth(group, theirs, health)
		statuses, err := d.Status(t.Context(), places)
		succeed(t, err)
		if diff := gocmp.Diff([]balancer.Status{{State: want.state, Others: &want.others}}, statuses); diff != "" {
			t.Errorf("%s (-want +got):\n%s", health, diff)
		}
	}
}

func TestAGroupIsDeletedOnTheWay(t *testing.T) {
	s := awselb.Start(t, awselb.Options{Delay: delay})
	gone, stays := web(s), web(s)
	d := targetGroups(t, s, gone, stays)
	places := discover(t, d, node)
	s.DeleteTargetGroup(gone)
	want := []balancer.State{balancer.Absent, balancer.Absent, balancer.Attached, balancer.Attached}
	if diff := gocmp.Diff(want, states(t, d, places)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Drain(t.Context(), places))
	want[2], want[3] = balancer.Draining, balancer.Draining
	if diff := gocmp.Diff(want, states(t, d, places)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Restore(t.Context(), places))
	says := fmt.Sprintf("spec.targetGroups.arns: target group %q does not exist in eu-central-1: correct it, or take it off the list", gone)
	if found, err := d.Discover(t.Context(), node); len(found) != 2 || found[0].Pool != stays || fmt.Sprint(err) != says {
		t.Errorf("%v, %v", found, err)
	}
}

// leave drains places until all are out, as a caller does: it only sends Attached ones. It returns how often
// it was throttled.
func leave(t *testing.T, d balancer.Driver, places []balancer.Membership, wait func()) (throttled int) {
	t.Helper()
	for range 100 {
		statuses, err := d.Status(t.Context(), places)
		var attached []balancer.Membership
		out := 0
		for i, s := range statuses {
			switch s.State {
			case balancer.Attached:
				attached = append(attached, places[i])
			case balancer.Drained, balancer.Absent:
				out++
			default:
			}
		}
		if err == nil && out == len(places) {
			return throttled
		}
		if err == nil {
			err = d.Drain(t.Context(), attached)
		}
		if err != nil && !errors.Is(err, balancer.ErrThrottled) {
			t.Fatal(err)
		}
		if err != nil {
			throttled++
		}
		wait()
	}
	t.Fatal("the Node does not leave")
	return throttled
}

func TestTenTimesThrottled(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay})
	groups := []string{web(s), web(s), web(s)}
	d := targetGroups(t, s, groups...)
	places := discover(t, d, node)
	s.Fail("DeregisterTargets", slices.Repeat([]string{"Throttling"}, 10)...)
	s.Calls()
	throttled := leave(t, d, places, func() { time.pass(d.Every()) })
	if throttled != 5 {
		t.Errorf("two attempts for each call: throttled %d times, want 5", throttled)
	}
	told := map[string]int{}
	for _, c := range s.Calls() {
		if c.Action == "DeregisterTargets" && c.Code == "" {
			told[fmt.Sprintf("%+v", gocmp.Diff(nil, c.Input))]++
		}
	}
	if len(told) != 3 {
		t.Errorf("each group is told once: %v", told)
	}
	for what, times := range told {
		if times != 1 {
			t.Errorf("told %d times: %s", times, what)
		}
	}
}

// TestAnAccountThatIsBusy has buckets that are far too small. A Node still leaves, and the driver makes no further
// calls in a round after a throttled one.
func TestAnAccountThatIsBusy(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay})
	groups := []string{web(s), web(s), web(s), web(s)}
	d := targetGroups(t, s, groups...)
	places := discover(t, d, node)
	s.Throttle(awselb.Bucket{Burst: 5, Refill: 0.5}, awselb.Bucket{Burst: 1, Refill: 0.1})
	s.Calls()
	throttled := leave(t, d, places, func() { time.pass(d.Every()) })
	refused := 0
	for _, c := range s.Calls() {
		if c.Code == "Throttling" {
			refused++
		}
	}
	if throttled == 0 || refused != 2*throttled {
		t.Errorf("throttled %d times with %d calls refused: want two calls each", throttled, refused)
	}
}

// TestAWriteIsSeenLater has delayed reads. A drained place must not be Attached meanwhile: a restore at that time must
// still register it.
func TestAWriteIsSeenLater(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay, Lag: 2_000_000_000})
	group := web(s)
	s.AddTarget(group, at(theirs, 8080))
	d := remembering(t, s, time, group)
	places := discover(t, d, node)

	succeed(t, d.Drain(t.Context(), places[:1]))
	statuses, err := d.Status(t.Context(), places)
	succeed(t, err)
	want := []balancer.Status{{State: balancer.Draining, Others: aws.Int(3)}, {State: balancer.Attached, Others: aws.Int(2)}}
	if diff := gocmp.Diff(want, statuses); diff != "" {
		t.Errorf("what was taken a moment ago gets no connections (-want +got):\n%s", diff)
	}
	time.pass(1_000_000_000)
	succeed(t, d.Drain(t.Context(), places)) // A repeated call does not restart the delay.
	time.pass(delay + 1_000_000_000)         // two seconds of it are not visible
	if got := states(t, d, places); got[0] != balancer.Drained || got[1] != balancer.Draining {
		t.Errorf("%v", got)
	}
	time.pass(10_000_000_000)

	succeed(t, d.Restore(t.Context(), places))
	if got := states(t, d, places); got[0] != balancer.Drained {
		t.Errorf("the write is not seen yet: %v", got)
	}
	succeed(t, d.Restore(t.Context(), places))
	time.pass(10_000_000_000)
	if got := states(t, d, places); got[0] != balancer.Attached || got[1] != balancer.Attached {
		t.Errorf("the write is seen: %v", got)
	}

	succeed(t, d.Drain(t.Context(), places))
	succeed(t, d.Restore(t.Context(), places))
	if got := states(t, d, places); got[0] != balancer.Attached {
		t.Errorf("it was given back: %v", got)
	}
}

// TestManyLeaveAtFive has fifty Nodes that leave groups of a region at once.
func TestManyLeaveAtFive(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay})
	groups := []string{web(s), web(s), web(s)}
	d := remembering(t, s, time)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			places, err := d.Discover(t.Context(), node)
			statuses, err2 := d.Status(t.Context(), places)
			if err := errors.Join(err, err2); err != nil || len(statuses) != 6 {
				t.Errorf("%v, %v", statuses, err)
			}
		})
	}
	all.Wait()
	if diff := gocmp.Diff(map[string]int{"DescribeTargetGroups": 1, "DescribeTargetHealth": 3}, awselb.Count(s.Calls())); diff != "" {
		t.Errorf("each group is looked at once (-want +got):\n%s", diff)
	}
	places := discover(t, d, node)
	succeed(t, d.Drain(t.Context(), places[:2]))
	if got := states(t, d, places); got[0] != balancer.Draining || got[2] != balancer.Attached {
		t.Errorf("%v", got)
	}
	if diff := gocmp.Diff(map[string]int{"DeregisterTargets": 1, "DescribeTargetHealth": 1}, awselb.Count(s.Calls())); diff != "" {
		t.Errorf("only what was written is looked at again (-want +got):\n%s", diff)
	}
	s.SetHealth(groups[2], mine, types.TargetHealthStateEnumUnused)
	time.pass(5_000_000_000)
	if got := states(t, d, places); got[4] != balancer.Disabled {
		t.Errorf("an answer is old after five seconds: %v", got)
	}
}

// TestARegionIsReadInParts has more groups than fit into one call of a caller.
func TestARegionIsReadInParts(t *testing.T) {
	time := newClock()
	s := awselb.Start(t, awselb.Options{Now: time.Now})
	for range 20 {
		web(s)
	}
	d := remembering(t, s, time)
	s.Throttle(awselb.Bucket{Burst: 11, Refill: 0.5}, awselb.Bucket{})
	for round := range 10 {
		found, err := d.Discover(t.Context(), node)
		if err == nil {
			if len(found) != 40 || round < 2 {
				t.Errorf("%d places after %d rounds", len(found), round)
			}
			return
		}
		if !errors.Is(err, balancer.ErrThrottled) {
			t.Fatal(err)
		}
		time.pass(20_000_000_000)
	}
	t.Error("what was read is asked again and again")
}

// TestNothingIsWrittenForNothing has a Node that stays.
func TestNothingIsWrittenForNothing(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	groups := []string{web(s), web(s)}
	d := targetGroups(t, s, groups...)
	for range 10 {
		states(t, d, discover(t, d, node))
	}
	if diff := gocmp.Diff(map[string]int{"DescribeTargetHealth": 40}, awselb.Count(s.Calls())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	succeed(t, d.Drain(t.Context(), nil))
	succeed(t, d.Restore(t.Context(), nil))
	states(t, d, nil)
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("nothing is asked for no memberships: %v", calls)
	}
}

// TestOneGroupMayNotBeRead has an IAM policy that denies one group: the driver still reports the other.
func TestOneGroupMayNotBeRead(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	first, second := web(s), web(s)
	d := targetGroups(t, s, first, second)
	places := discover(t, d, node)
	s.Fail("DescribeTargetHealth", "AccessDenied")
	statuses, err := d.Status(t.Context(), places)
	if err == nil || !strings.Contains(err.Error(), first) || !strings.Contains(err.Error(), "elasticloadbalancing:DescribeTargetHealth") {
		t.Errorf("the error does not say what is missing: %v", err)
	}
	if len(statuses) != 4 || statuses[0].State != balancer.Unknown || statuses[2].State != balancer.Attached {
		t.Errorf("%+v", statuses)
	}
	s.Fail("DescribeTargetHealth", "AccessDenied")
	found, err := d.Discover(t.Context(), node)
	if err == nil || len(found) != 2 || found[0].Pool != second {
		t.Errorf("%v, %v", found, err)
	}
	s.Fail("DeregisterTargets", "AccessDenied")
	if err := d.Drain(t.Context(), places); err == nil || len(s.Targets(second)) != 1 || len(s.Targets(first)) != 3 {
		t.Errorf("one that fails keeps no other from being told: %v", err)
	}
}

// TestNobodyAnswers has an endpoint that refuses connections, one that accepts and does not answer, and one with an
// endless response.
func TestNobodyAnswers(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	group := web(s)
	places := discover(t, targetGroups(t, s, group), node)
	var listen net.ListenConfig
	silent, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	succeed(t, err)
	refused := silent.Addr().String()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := []byte("<DescribeTargetHealthResponse>" + strings.Repeat(" ", 1<<20))
		for r.Context().Err() == nil {
			_, _ = w.Write(page)
		}
	}))
	defer endless.Close()
	for name, c := range map[string]struct {
		endpoint, want string
		patience       time.Duration
	}{
		"Silent":  {"http://" + refused, "no answer in time", 3 * time.Second},
		"Refused": {"http://127.0.0.1:1", "connection refused at http://127.0.0.1:1: check region and endpoint", 3 * time.Second},
		"Endless": {endless.URL, "answer is longer than 16 MB", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := &awselb.Server{URL: c.endpoint}
			d := targetGroups(t, s, group)
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			defer cancel()
			statuses, err := d.Status(ctx, places)
			if err == nil || !strings.HasSuffix(err.Error(), group+": "+c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if len(statuses) != 2 || statuses[0].State != balancer.Unknown {
				t.Errorf("%+v", statuses)
			}
		})
	}
	succeed(t, silent.Close())
}

// TestFailuresHaveTheSameText in both attempts, so that a condition is not rewritten each time.
func TestFailuresHaveTheSameText(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	group := web(s)
	d := targetGroups(t, s, group)
	for _, code := range []string{"AccessDenied", "ExpiredToken", "ValidationError", "Throttling", "InternalFailure"} {
		s.Fail("DescribeTargetHealth", slices.Repeat([]string{code}, 4)...)
		_, first := d.Discover(t.Context(), node)
		_, second := d.Discover(t.Context(), node)
		if first == nil || second == nil || first.Error() != second.Error() || strings.Contains(first.Error(), "00000000-") {
			t.Errorf("%s: %v, then %v", code, first, second)
		}
		s.Forgive("DescribeTargetHealth")
	}
}

func TestWithoutCredentials(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	s := awselb.Start(t, awselb.Options{})
	group := web(s)
	_, err := targetGroups(t, s, group).Discover(t.Context(), node)
	if err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("%v", err)
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("nothing is sent without a signature: %v", calls)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := awselb.Start(t, awselb.Options{})
	groups := []string{web(s), web(s), web(s)}
	d := targetGroups(t, s, groups...)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			places, err := d.Discover(t.Context(), node)
			_, err2 := d.Status(t.Context(), places)
			if err := errors.Join(err, err2, d.Drain(t.Context(), places), d.Restore(t.Context(), places)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := len(s.Targets(groups[0])); got != 3 {
		t.Errorf("%d targets", got)
	}
}

// TestWhatIsTakenIsGivenBack drains random places and restores them: each group must be as before, and no other target
// may be changed.
func TestWhatIsTakenIsGivenBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		time := newClock()
		s := awselb.Start(t, awselb.Options{Now: time.Now, Delay: delay})
		before := map[string][]types.TargetDescription{}
		for n := range rapid.IntRange(1, 3).Draw(rt, "groups") {
			kind := rapid.SampledFrom([]types.TargetTypeEnum{types.TargetTypeEnumInstance, types.TargetTypeEnumIp}).Draw(rt, "type")
			ids := []string{mine, theirs}
			if kind == types.TargetTypeEnumIp {
				ids = []string{"10.0.0.7", "10.0.0.70", "192.168.1.7"}
			}
			arn := s.AddTargetGroup(fmt.Sprint("group-", n), kind, 80)
			for range rapid.IntRange(0, 6).Draw(rt, "targets") {
				d := at(rapid.SampledFrom(ids).Draw(rt, "id"), rapid.SampledFrom([]int32{0, 80, 81, 65535}).Draw(rt, "port"))
				if kind == types.TargetTypeEnumIp {
					d = in(rapid.SampledFrom([]string{"all", "eu-central-1a"}).Draw(rt, "zone"), d)
				}
				if rapid.Bool().Draw(rt, "quic") {
					d.QuicServerId = aws.String("0x0123456789abcdef")
				}
				s.AddTarget(arn, d)
			}
			before[arn] = s.Targets(arn)
		}
		d := targetGroups(t, s)
		places, err := d.Discover(context.Background(), node)
		if err != nil {
			rt.Fatal(err)
		}
		if err := d.Drain(context.Background(), places); err != nil {
			rt.Fatal(err)
		}
		for arn, targets := range before {
			others := slices.DeleteFunc(slices.Clone(targets), func(d types.TargetDescription) bool {
				return *d.Id == mine || slices.Contains(node.Addresses, *d.Id)
			})
			if diff := diff(others, s.Targets(arn)); diff != "" {
				rt.Fatalf("others are touched, or the Node is not (-want +got):\n%s", diff)
			}
		}
		time.pass(delay)
		statuses, err := d.Status(context.Background(), places)
		if err != nil || slices.ContainsFunc(statuses, func(s balancer.Status) bool { return s.State != balancer.Drained }) {
			rt.Fatalf("%+v, %v", statuses, err)
		}
		if err := d.Restore(context.Background(), places); err != nil {
			rt.Fatal(err)
		}
		for arn, targets := range before {
			if diff := diff(targets, s.Targets(arn)); diff != "" {
				rt.Fatalf("a group is not what it was (-want +got):\n%s", diff)
			}
		}
	})
}
