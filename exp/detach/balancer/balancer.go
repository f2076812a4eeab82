// SPDX-License-Identifier: Apache-2.0

// Package balancer answers one question: what must a load balancer be able to do so that
// a Node can leave it without harm? Each kind of load balancer has a Driver in a package
// of its own. A Driver decides nothing: when a Node is taken out, how long is waited, and
// what is put back is for package detach.
package balancer

import (
	"context"
	"errors"
	"time"
)

// ErrThrottled is the error of a Driver that was told to ask less often. Nothing is known
// of the load balancer, and nothing is wrong with it.
var ErrThrottled = errors.New("the load balancer asks us to slow down")

// ErrNameless is the error of Discover for a Node of which nothing is known by which the load
// balancer could know it. Nothing is wrong with the load balancer, nor with other Nodes.
var ErrNameless = errors.New("nothing is known by which the load balancer could know the Node")

// A Node is how load balancers know a Node.
type Node struct {
	// Name is that of the Node.
	Name string
	// ProviderID is that of its spec, such as aws:///eu-central-1a/i-0123456789abcdef0.
	ProviderID string
	// Addresses are its IP addresses.
	Addresses []string
}

// A Membership is the place of a Node in one pool of a load balancer. It names the place
// so that it can be taken and given back by itself.
type Membership struct {
	// Pool is a backend of HAProxy, the ARN of a target group, or the name of a classic
	// load balancer. It is empty for a load balancer that has no pools.
	Pool string
	// Member is the name of the server, or the ID of the target or instance.
	Member string
	// Port is that of the target; zero is that of the pool.
	Port int32
	// Address is the IP address of a server, where its name may be given to another host. It is
	// part of what the place is: a server with the same name and another address is another place.
	Address string
	// Lasts says that the place is there also while there is no such Node, as a server in
	// a file is. It is put back when the Node is.
	Lasts bool
}

// Same reports whether both are the same place.
func (m Membership) Same(other Membership) bool {
	return m.Pool == other.Pool && m.Member == other.Member && m.Port == other.Port && m.Address == other.Address
}

// A State is how a load balancer treats a member.
type State string

const (
	// Attached gets new connections.
	Attached State = "Attached"
	// Draining gets no new connections, and has some.
	Draining State = "Draining"
	// Drained gets no new connections, and has none.
	Drained State = "Drained"
	// Absent is no member of the pool, or of a pool that is gone, or a place that is not the
	// Node's any more.
	Absent State = "Absent"
	// Disabled gets no new connections because somebody else wants that. It is not ours to
	// put back.
	Disabled State = "Disabled"
	// Unknown could not be read. The zero value means the same.
	Unknown State = "Unknown"
)

// A Status is what a load balancer says of a member.
type Status struct {
	// State is how it treats the member.
	State State
	// Connections is how many the member has; nil if the load balancer does not count them.
	Connections *int64
	// Partial says that a part of the load balancer did not answer, and may treat the member
	// otherwise.
	Partial bool
	// Others is how many other members of the pool get new connections; nil if that is not
	// known.
	Others *int
}

// A Driver speaks to one load balancer. Every call is idempotent, bounded by its context,
// and safe for concurrent use. What cannot be read is an error, never an empty answer.
type Driver interface {
	// Discover returns every place of a Node in the load balancer, whatever its State. With an
	// error it returns those in the parts that answered.
	Discover(ctx context.Context, node Node) ([]Membership, error)
	// Status returns the Status of each membership, in their order. With an error it returns
	// what is known from those parts that answered, or nothing.
	Status(ctx context.Context, memberships []Membership) ([]Status, error)
	// Elsewhere reports whether a place is known to belong to another machine than the Node: its
	// address or its instance is not one of the Node's. It sends no request.
	Elsewhere(node Node, membership Membership) bool
	// Drain has the memberships get no new connections. Those that they have stay. One
	// that is Absent or Disabled is left alone.
	Drain(ctx context.Context, memberships []Membership) error
	// Restore undoes Drain, whoever asked for that. One that is Disabled is left alone, and
	// so is one that is Absent and cannot be made again.
	Restore(ctx context.Context, memberships []Membership) error
	// Every is how long to wait between two looks at a member that is Draining.
	Every() time.Duration
	// Volatile says that the load balancer forgets what Drain did when it starts anew, so
	// that it has to be looked at, and told again.
	Volatile() bool
}
