// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

func TestInstanceID(t *testing.T) {
	for providerID, want := range map[string]string{
		"aws:///eu-central-1a/i-0123456789abcdef0": "i-0123456789abcdef0",
		"aws:///us-east-1e/i-01234567":             "i-01234567", // from before 2016
		"":                                         "",
		"aws://":                                   "",
		"aws:///":                                  "",
		"aws:///eu-central-1a/":                    "",
		"i-0123456789abcdef0":                      "",
		"aws:///i-0123456789abcdef0":               "",
		"aws://eu-central-1a/i-0123456789abcdef0":                                                  "",
		"aws:///a/b/i-0123456789abcdef0":                                                           "",
		"aws:///eu-central-1a/i-0123456789ABCDEF0":                                                 "",
		"aws:///eu-central-1a/i-0123456789abcdef01":                                                "",
		"aws:///eu-central-1a/i-":                                                                  "",
		"aws:///eu-central-1a/i-0123456789abcdef0\n":                                               "",
		"aws:///eu-central-1a/i-0123456789abcdef0,zone=":                                           "",
		"aws:///eu-central-1a/mi-0123456789abcdef0":                                                "", // of Systems Manager
		"eks-hybrid:///eu-central-1/box/mi-0123456789ab":                                           "",
		"aws:///eu-central-1a/0123456789-abcdef/fargate-ip-10-0-0-7.eu-central-1.compute.internal": "",
		"gce://project/zone/i-0123456789abcdef0":                                                   "",
		"libvirt:///i-0123456789abcdef0":                                                           "",
	} {
		if got := InstanceID(providerID); got != want {
			t.Errorf("%q: got %q, want %q", providerID, got, want)
		}
	}
}

func FuzzInstanceID(f *testing.F) {
	f.Add("aws:///eu-central-1a/i-0123456789abcdef0")
	f.Fuzz(func(t *testing.T, providerID string) {
		if id := InstanceID(providerID); id != "" && (!instanceID.MatchString(id) || !strings.HasSuffix(providerID, "/"+id) || !strings.HasPrefix(providerID, "aws:///")) {
			t.Errorf("%q is not the instance of %q", id, providerID)
		}
	})
}

// TestSharedAddressesIdentifyNoNode: addresses that many machines share, and invalid ones.
func TestSharedAddressesIdentifyNoNode(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1", "::1", "0.0.0.0", "169.254.1.1", "fe80::1", "fe80::1%eth0", "2001:db8::1%eth0", "224.0.0.1", "255.255.255.255", "10.0.0.1/8", "box.local", "10.0.0"} {
		if who := identify(balancer.Node{Addresses: []string{address}}); !who.empty() || who.is(address) {
			t.Errorf("%q names somebody", address)
		}
	}
	who := identify(balancer.Node{Addresses: []string{"::ffff:10.0.0.7", "2001:db8::7"}})
	for target, want := range map[string]bool{
		"10.0.0.7": true, "2001:DB8:0::7": true, "10.0.0.70": false, "i-0123456789abcdef0": false, "": false,
		"arn:aws:lambda:eu-central-1:123456789012:function:f": false,
	} {
		if got := who.is(target); got != want {
			t.Errorf("%q: got %t, want %t", target, got, want)
		}
	}
	if identify(balancer.Node{}).is("") {
		t.Error("a Node without an instance ID is a target without an ID")
	}
}

// TestInstanceIsRegisteredWithoutZone: an instance does not come back under its ID.
func TestInstanceIsRegisteredWithoutZone(t *testing.T) {
	zoned := identity{instance: "i-0123456789abcdef0"}.membership("group", &types.TargetDescription{Id: aws.String("i-0123456789abcdef0"), AvailabilityZone: aws.String("eu-central-1a")})
	if want := (balancer.Membership{Pool: "group", Member: "i-0123456789abcdef0"}); zoned != want {
		t.Errorf("an instance is registered without a zone, and does not last: %+v", zoned)
	}
}

// TestAnAddressOfAnInstanceIsGoneWithIt: AWS may assign the address to another instance.
func TestAnAddressOfAnInstanceIsGoneWithIt(t *testing.T) {
	node := balancer.Node{ProviderID: "aws:///eu-central-1a/i-0123456789abcdef0", Addresses: []string{"10.0.0.7"}}
	if m := identify(node).membership("group", &types.TargetDescription{Id: aws.String("10.0.0.7"), AvailabilityZone: aws.String("all")}); m.Persistent || m.Member != "10.0.0.7"+zoneMark+"all" {
		t.Errorf("%+v", m)
	}
}

// TestElsewhereComparesTargetIds uses only the ID of the target.
func TestElsewhereComparesTargetIds(t *testing.T) {
	node := balancer.Node{ProviderID: "aws:///eu-central-1a/i-0123456789abcdef0", Addresses: []string{"10.0.0.7"}}
	for member, want := range map[string]bool{
		"i-0123456789abcdef0": false, "i-0123456789abcdef1": true, "10.0.0.7": false, "10.0.0.7,zone=all": false, "10.0.0.8": true, "10.0.0.8,zone=all": true,
	} {
		m := balancer.Membership{Pool: "g", Member: member}
		if got := (&TargetGroups{}).Elsewhere(node, m); got != want {
			t.Errorf("%s: %t, want %t", member, got, want)
		}
		if instance := instanceID.MatchString(member); instance && (&Classic{}).Elsewhere(node, m) != want {
			t.Errorf("%s of a classic load balancer: want %t", member, want)
		}
		if (&TargetGroups{}).Elsewhere(balancer.Node{}, m) || (&Classic{}).Elsewhere(balancer.Node{}, m) {
			t.Errorf("%s is elsewhere than a Node of which nothing is known", member)
		}
	}
}

func TestEveryHealthIsKnown(t *testing.T) {
	for _, state := range types.TargetHealthStateEnum("").Values() {
		if stateOf(&types.TargetHealth{State: state}) == balancer.Unknown {
			t.Errorf("%s is not known", state)
		}
	}
	for _, h := range []*types.TargetHealth{nil, {}, {State: "something.new"}} {
		if got := stateOf(h); got != balancer.Unknown || serves(h) {
			t.Errorf("%+v: %s", h, got)
		}
	}
}

// TestAnAnswerWithHoles has entries that AWS should not return.
func TestAnAnswerWithHoles(t *testing.T) {
	all := []types.TargetHealthDescription{{}, {Target: &types.TargetDescription{}}, {TargetHealth: &types.TargetHealth{State: types.TargetHealthStateEnumHealthy}}}
	if diff := cmp.Diff(balancer.Status{State: balancer.Drained, Others: aws.Int(0)}, statusOf(balancer.Membership{Member: "10.0.0.7", Port: 80}, all, func(balancer.Membership) bool { return false })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadSpecsAreRefused(t *testing.T) {
	const group = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/web/0123456789abcdef"
	for reason, c := range map[string]struct {
		region, endpoint string
		arns             []string
		want             string
	}{
		"Good":                 {region: "eu-central-1", arns: []string{group}},
		"GoodWithEndpoint":     {region: "us-gov-west-1", endpoint: "https://vpce-0123.elasticloadbalancing.us-gov-west-1.vpce.amazonaws.com/"},
		"NoRegion":             {want: `region "" is not`},
		"RegionIsAHost":        {region: "example.com/", want: `region "example.com/" is not`},
		"RegionIsAnotherHost":  {region: "eu.example.com", want: "is not the name of a region"},
		"EndpointIsNoAddress":  {region: "eu-central-1", endpoint: "eu-central-1", want: "is not an address"},
		"EndpointHasAPassword": {region: "eu-central-1", endpoint: "https://a:b@example.com", want: "is not an address"},
		"EndpointIsAFile":      {region: "eu-central-1", endpoint: "file:///etc/passwd", want: "is not an address"},
		"GroupElsewhere":       {region: "eu-west-1", arns: []string{group}, want: "is not of region eu-west-1"},
		"NoTargetGroup":        {region: "eu-central-1", arns: []string{strings.Replace(group, ":targetgroup/", ":loadbalancer/app/", 1)}, want: "is not the ARN of a target group"},
		"NoARN":                {region: "eu-central-1", arns: []string{"web"}, want: "is not the ARN of a target group"},
	} {
		place := expv1.AWSAccess{Region: c.region, Endpoint: c.endpoint}
		_, err := NewTargetGroups(expv1.TargetGroupsBalancer{AWSAccess: place, ARNs: c.arns}, NewClients(clock.RealClock{}))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", reason, err, c.want)
		}
		if len(c.arns) == 0 {
			_, classicErr := NewClassic(expv1.ClassicELBBalancer{AWSAccess: place}, NewClients(clock.RealClock{}))
			if fmt.Sprint(classicErr) != fmt.Sprint(err) {
				t.Errorf("%s: %v, but a classic one %v", reason, err, classicErr)
			}
		}
	}
}

// TestADriverIsNotChangedByItsSpec changes the spec after the driver was created.
func TestADriverIsNotChangedByItsSpec(t *testing.T) {
	spec := expv1.TargetGroupsBalancer{AWSAccess: expv1.AWSAccess{Region: "eu-central-1"}, ARNs: []string{"arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/web/0123456789abcdef"}}
	d, err := NewTargetGroups(spec, NewClients(clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	kept := slices.Clone(spec.ARNs)
	spec.ARNs[0] = "other"
	if diff := cmp.Diff(kept, d.spec.ARNs); diff != "" {
		t.Error(diff)
	}
}

// TestCallsAreBatched counts the members of each call.
func TestCallsAreBatched(t *testing.T) {
	var many []balancer.Membership
	for n := range 250 {
		many = append(many, balancer.Membership{Pool: fmt.Sprint(n % 2), Member: fmt.Sprint(n)})
	}
	var sizes []int
	c := NewClients(clock.RealClock{})
	if err := c.callPerPool(t.Context(), expv1.AWSAccess{Region: "eu-central-1"}, many, "RegisterTargets", func(_ *services, _ string, members []balancer.Membership) error {
		sizes = append(sizes, len(members))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{100, 25, 100, 25}, sizes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNoCallFollowsThrottling: no call follows after throttling, or after the context has ended.
func TestNoCallFollowsThrottling(t *testing.T) {
	pools := []balancer.Membership{{Pool: "a"}, {Pool: "b"}, {Pool: "c"}}
	for reason, c := range map[string]struct {
		err  error
		want int
	}{
		"Throttled": {&smithy.GenericAPIError{Code: "Throttling", Message: "Rate exceeded"}, 1},
		"Denied":    {&smithy.GenericAPIError{Code: "AccessDenied"}, 3},
		"Canceled":  {context.Canceled, 1},
	} {
		called := 0
		ctx, cancel := context.WithCancel(t.Context())
		err := NewClients(clock.RealClock{}).callPerPool(ctx, expv1.AWSAccess{Region: "eu-central-1"}, pools, "DeregisterTargets", func(*services, string, []balancer.Membership) error {
			called++
			if errors.Is(c.err, context.Canceled) {
				cancel()
			}
			return c.err
		})
		cancel()
		if called != c.want || errors.Is(err, balancer.ErrThrottled) != (reason == "Throttled") || !errors.Is(err, c.err) {
			t.Errorf("%s: called %d times, want %d: %v", reason, called, c.want, err)
		}
	}
}

// TestReasonsAreForPeople checks the text of each failure.
func TestReasonsAreForPeople(t *testing.T) {
	operation := func(err error) error {
		return &smithy.OperationError{ServiceID: "Elastic Load Balancing v2", OperationName: "RegisterTargets", Err: err}
	}
	api := func(code, message string) error {
		return operation(&smithy.GenericAPIError{Code: code, Message: message})
	}
	for want, err := range map[string]error{
		"RegisterTargets of g: AccessDenied: no: allow elasticloadbalancing:RegisterTargets in the IAM policy of the manager":                            api("AccessDenied", "no"),
		"RegisterTargets of g: ExpiredToken: old: check the manager's credentials":                                                                       api("ExpiredToken", "old"),
		"RegisterTargets of g: InvalidTarget: gone":                                                                                                      api("InvalidTarget", "gone"),
		"RegisterTargets of g: the load balancer limits the request rate":                                                                                api("Throttling", "Rate exceeded"),
		"RegisterTargets of g: no answer in time":                                                                                                        operation(context.DeadlineExceeded),
		"RegisterTargets of g: the call was canceled":                                                                                                    operation(context.Canceled),
		"RegisterTargets of g: request cannot be made: no such profile":                                                                                  operation(errors.New("no such profile")),
		"RegisterTargets of g: reading AWS' configuration: bad file":                                                                                     unread(errors.New("bad file")),
		"RegisterTargets of g: no credentials: GetMetadata of ec2imds failed: give the manager an IAM role, or credentials in its environment":           operation(fmt.Errorf("get identity: %w", &smithy.OperationError{ServiceID: "ec2imds", OperationName: "GetMetadata", Err: context.DeadlineExceeded})),
		"RegisterTargets of g: no credentials: AssumeRoleWithWebIdentity of STS failed: give the manager an IAM role, or credentials in its environment": operation(fmt.Errorf("get identity: %w", &smithy.OperationError{ServiceID: "STS", OperationName: "AssumeRoleWithWebIdentity", Err: &smithy.GenericAPIError{Code: "AccessDenied"}})),
	} {
		got := explain("RegisterTargets", "g", err)
		if got.Error() != want || !errors.Is(got, err) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestUnusedClientsAreDropped: endpoints that were used once do not accumulate.
func TestUnusedClientsAreDropped(t *testing.T) {
	time := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	c := NewClients(time)
	first, err := c.at(t.Context(), expv1.AWSAccess{Region: "eu-central-1"})
	for n := range 12 {
		time.SetTime(time.Now().Add(idle / 4))
		_, err2 := c.at(t.Context(), expv1.AWSAccess{Region: "eu-central-1", Endpoint: fmt.Sprint("https://example.com:", n)})
		again, err3 := c.at(t.Context(), expv1.AWSAccess{Region: "eu-central-1"})
		if err := errors.Join(err, err2, err3); err != nil || again != first {
			t.Fatalf("those in use are kept: %v", err)
		}
	}
	if len(c.byAccess) > 5 {
		t.Errorf("%d are kept", len(c.byAccess))
	}
}

// TestResultFromBeforeWriteIsNotCached: a request is in progress during a write. Its result is for its caller only.
func TestResultFromBeforeWriteIsNotCached(t *testing.T) {
	s := newShared[int](clocktesting.NewFakePassiveClock(time.Unix(0, 0)).Now)
	got := make([]int, 3)
	got[0], _ = s.get(t.Context(), "a", func() (int, error) {
		s.forget("a")
		return 1, nil
	})
	for i := range got[1:] {
		got[i+1], _ = s.get(t.Context(), "a", func() (int, error) { return i + 2, nil })
	}
	if diff := cmp.Diff([]int{1, 2, 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLifetimeOfCachedResult depends on the results of other requests.
func TestLifetimeOfCachedResult(t *testing.T) {
	slow := &smithy.GenericAPIError{Code: "Throttling"}
	for reason, c := range map[string]struct {
		first, other error
		after        time.Duration
		asked        bool
	}{
		"Fresh":               {nil, nil, fresh - 1, false},
		"Old":                 {nil, nil, fresh, true},
		"StaleWhileInTrouble": {nil, slow, stale - 1, false},
		"TooStale":            {nil, slow, stale, true},
		"SlowDown":            {slow, nil, fresh - 1, false},
		"SlowDownIsOver":      {slow, nil, fresh, true},
		"AnotherFailure":      {errors.New("cut"), nil, 0, true},
	} {
		time := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
		s := newShared[int](time.Now)
		_, _ = s.get(t.Context(), "a", func() (int, error) { return 1, c.first })
		_, _ = s.get(t.Context(), "b", func() (int, error) { return 1, c.other })
		time.SetTime(time.Now().Add(c.after))
		asked := false
		_, _ = s.get(t.Context(), "a", func() (int, error) { asked = true; return 2, nil })
		if asked != c.asked {
			t.Errorf("%s: asked again: %t", reason, asked)
		}
	}
}

// TestWaitEndsWithContext: a caller waits for the request of another caller only until its context ends.
func TestWaitEndsWithContext(t *testing.T) {
	s := newShared[int](time.Now)
	canceled, cancel := context.WithCancel(t.Context())
	_, err := s.get(t.Context(), "a", func() (int, error) {
		cancel()
		return s.get(canceled, "b", func() (int, error) { return 1, nil })
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRecentDrainsExpire: a deregistration is dropped after lag, when it is restored, and when AWS rejected it. It
// stays if the result of the call is unknown.
func TestRecentDrainsExpire(t *testing.T) {
	time := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	s := newRecentDrains(time.Now)
	m := balancer.Membership{Pool: "g", Member: "10.0.0.7,zone=all", Port: 80, Persistent: true}
	seen := balancer.Membership{Pool: "g", Member: "10.0.0.7", Port: 80}
	for want, err := range map[bool]error{true: context.DeadlineExceeded, false: &smithy.GenericAPIError{Code: "AccessDenied"}} {
		if got := s.take([]balancer.Membership{m}, func() error { return err }); !errors.Is(got, err) || s.out(seen) != want {
			t.Errorf("after %v: %t", got, !want)
		}
	}
	_ = s.take([]balancer.Membership{m}, func() error { return nil })
	time.SetTime(time.Now().Add(lag - 1))
	if !s.out(seen) || s.out(balancer.Membership{Pool: "g", Member: "10.0.0.7", Port: 81}) {
		t.Error("it is out, and another port is not")
	}
	time.SetTime(time.Now().Add(1))
	if s.out(seen) {
		t.Error("AWS shows it by now")
	}
	_ = s.take([]balancer.Membership{m}, func() error { return nil })
	s.forget([]balancer.Membership{m})
	if s.out(seen) {
		t.Error("it was given back")
	}
}
