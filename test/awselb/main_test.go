// SPDX-License-Identifier: Apache-2.0

package awselb_test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/elb"
	passive "k8s.io/utils/clock"

	"github.com/finos/cluster-api-addon-provider-5spot/test/awselb"
)

// The Node that leaves, and another.
const (
	mine   = "i-0123456789abcdef0"
	theirs = "i-0fedcba9876543210"
)

// node is the Node that leaves.
var node = balancer.Node{Name: "box", ProviderID: "aws:///eu-central-1a/" + mine, Addresses: []string{"10.0.0.7", "192.168.1.7", "2001:db8::7"}}

func TestMain(m *testing.M) {
	for name, value := range awselb.Environment() {
		_ = os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

// A clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Unix(1_800_000_000, 0)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// forgetful is a clock for which every cached entry has expired.
type forgetful struct{ clock }

func (f *forgetful) Now() time.Time {
	f.pass(time.Hour)
	return f.clock.Now()
}

func (f *forgetful) Since(at time.Time) time.Duration { return f.Now().Sub(at) }

// place is the endpoint of the server.
func place(s *awselb.Server) v1alpha1.AWSAccess {
	return v1alpha1.AWSAccess{Region: awselb.Region, Endpoint: s.URL}
}

// targetGroups returns a driver of groups, of all if none is given. It caches nothing.
func targetGroups(t *testing.T, s *awselb.Server, arns ...string) balancer.Driver {
	t.Helper()
	return remembering(t, s, &forgetful{}, arns...)
}

// remembering returns a driver of groups with a clock.
func remembering(t *testing.T, s *awselb.Server, c passive.PassiveClock, arns ...string) balancer.Driver {
	t.Helper()
	d, err := elb.NewTargetGroups(v1alpha1.TargetGroupsBalancer{AWSAccess: place(s), ARNs: arns}, elb.NewClients(c))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// classic returns a driver of classic load balancers, of all if none is named. It caches nothing.
func classic(t *testing.T, s *awselb.Server, names ...string) balancer.Driver {
	t.Helper()
	return rememberingClassic(t, s, &forgetful{}, names...)
}

func rememberingClassic(t *testing.T, s *awselb.Server, c passive.PassiveClock, names ...string) balancer.Driver {
	t.Helper()
	d, err := elb.NewClassic(v1alpha1.ClassicELBBalancer{AWSAccess: place(s), Names: names}, elb.NewClients(c))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// discover returns the memberships of the Node.
func discover(t *testing.T, d balancer.Driver, n balancer.Node) []balancer.Membership {
	t.Helper()
	found, err := d.Discover(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// states returns the State of each membership.
func states(t *testing.T, d balancer.Driver, memberships []balancer.Membership) []balancer.State {
	t.Helper()
	statuses, err := d.Status(t.Context(), memberships)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]balancer.State, len(statuses))
	for i, s := range statuses {
		all[i] = s.State
	}
	return all
}

// succeed fails the test if err is not nil.
func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at is a target with its own port, or the group's.
func at(id string, port int32) types.TargetDescription {
	d := types.TargetDescription{Id: &id}
	if port != 0 {
		d.Port = &port
	}
	return d
}

// in is a target that also has a zone.
func in(zone string, d types.TargetDescription) types.TargetDescription {
	d.AvailabilityZone = aws.String(zone)
	return d
}
