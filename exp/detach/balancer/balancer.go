// SPDX-License-Identifier: Apache-2.0

// Package balancer defines Driver, the interface of each kind of load balancer, and the types that it exchanges with
// package detach. Each kind implements Driver in its own package. A Driver makes no decisions: package detach decides
// when a Node is drained, how long a machine waits, and which memberships are restored.
package balancer

import (
	"context"
	"errors"
	"time"
)

// ErrThrottled is returned by a Driver if the load balancer limits the request rate. The state of the members is
// unknown then, but the load balancer works.
var ErrThrottled = errors.New("the load balancer limits the request rate")

// ErrNoIdentity is returned by Discover for a Node without addresses or provider ID, so that no member can match it.
// The load balancer works, and other Nodes are not affected.
var ErrNoIdentity = errors.New("it has nothing that a member of the load balancer could match")

// Node is the data by which load balancers identify a Node.
type Node struct {
	// Name is the name of the Node object.
	Name string
	// ProviderID is the provider ID of the machine, such as aws:///eu-central-1a/i-0123456789abcdef0.
	ProviderID string
	// Addresses are its IP addresses.
	Addresses []string
}

// Membership identifies the entry of a Node in one pool of a load balancer. A Driver drains and restores each
// membership separately.
type Membership struct {
	// Pool is a backend of HAProxy, the ARN of a target group, or the name of a classic load balancer. It is empty for
	// a load balancer without pools.
	Pool string
	// Member is the name of the server, or the ID of the target or instance.
	Member string
	// Port is the port of the target. Zero means the port of the pool.
	Port int32
	// Address is the IP address of a server. It is set for load balancers where a server name may move to another host.
	// Two servers with the same name and different addresses are different memberships.
	Address string
	// Persistent means that the entry exists independently of the Node, such as a server in a configuration file. It is
	// restored when the Node comes back.
	Persistent bool
}

// Same reports whether both identify the same entry. It ignores Persistent.
func (m Membership) Same(other Membership) bool {
	return m.Pool == other.Pool && m.Member == other.Member && m.Port == other.Port && m.Address == other.Address
}

// State is how a load balancer treats a member.
type State string

const (
	// Attached means that the member gets new connections.
	Attached State = "Attached"
	// Draining means that the member gets no new connections, and has open ones.
	Draining State = "Draining"
	// Drained means that the member gets no new connections, and has none.
	Drained State = "Drained"
	// Absent means that the pool has no such member, that the pool does not exist, or that the entry belongs to another
	// machine now.
	Absent State = "Absent"
	// Disabled means that the member gets no new connections because another party disabled it. 5-Spot does not restore
	// it.
	Disabled State = "Disabled"
	// Unknown means that the state could not be read. It is the zero value.
	Unknown State = ""
)

// Status is what a load balancer reports about a member.
type Status struct {
	// State is how the load balancer treats the member.
	State State
	// Connections is the number of open connections. It is nil if the load balancer does not count them.
	Connections *int64
	// Partial means that a part of the load balancer did not answer. That part may treat the member differently.
	Partial bool
	// Others is the number of other members of the pool that get new connections. It is nil if unknown.
	Others *int
}

// Driver calls one load balancer. Every call is idempotent, bounded by its context, and safe for concurrent use. Data
// that cannot be read is an error, never an empty result.
type Driver interface {
	// Discover returns all memberships of a Node in the load balancer, in any State. With an error it returns the
	// memberships in the parts that answered.
	Discover(ctx context.Context, node Node) ([]Membership, error)
	// Status returns the Status of each membership, in the same order. With an error it returns the results of the
	// parts that answered, or nothing.
	Status(ctx context.Context, memberships []Membership) ([]Status, error)
	// Elsewhere reports whether a membership is known to belong to another machine: its address or instance is not one
	// of the Node's. It sends no request.
	Elsewhere(node Node, membership Membership) bool
	// Drain stops new connections to the memberships. Open connections continue. Drain skips memberships that are
	// Absent or Disabled.
	Drain(ctx context.Context, memberships []Membership) error
	// Restore undoes Drain, also a drain that another party requested. It skips Disabled memberships, and
	// Absent ones that cannot be created again.
	Restore(ctx context.Context, memberships []Membership) error
	// Every is the time between two calls of Status while a member is Draining.
	Every() time.Duration
	// Volatile reports whether the load balancer loses drains when it restarts. If so, package detach checks detached
	// Nodes more often and drains them again.
	Volatile() bool
}
