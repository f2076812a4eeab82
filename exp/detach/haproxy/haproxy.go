// SPDX-License-Identifier: Apache-2.0

// Package haproxy is the Driver for HAProxy. It calls the runtime API of one or more processes that have the same
// servers. A server belongs to a Node if it has one of the Node's IP addresses.
//
// Drain uses HAProxy's own drain: the server gets no new connections, while its open connections and health checks
// continue. HAProxy has four limits:
//
//   - It does not report which party drained a server. A server that another party drained before is Drained here as
//     well, and Restore enables it.
//   - It loses a drain at a reload, unless it loads a server-state-file.
//   - After a reload the old process keeps its connections, and no longer reports their number.
//   - Clients that a cookie or a stick-table binds to a server still reach it while it drains.
package haproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	expv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// every is the interval between two reads. A read costs HAProxy less than a millisecond.
const every = time.Second

// Driver is the balancer.Driver of HAProxy. It keeps no state and is safe for concurrent use.
type Driver struct {
	endpoints []endpoint
	backends  []string
}

var _ balancer.Driver = &Driver{}

// New returns the Driver of a load balancer. It does not connect. It returns an error for an invalid endpoint or
// backend name.
func New(spec expv1.HAProxyBalancer) (*Driver, error) {
	d := &Driver{backends: spec.Backends}
	if len(spec.Endpoints) == 0 {
		return nil, errors.New("spec.haproxy.endpoints: name at least one")
	}
	for _, address := range spec.Endpoints {
		e, err := parseEndpoint(address)
		if err != nil {
			return nil, fmt.Errorf("spec.haproxy.endpoints: %w", err)
		}
		d.endpoints = append(d.endpoints, e)
	}
	for _, b := range spec.Backends {
		if !isName(b) {
			return nil, fmt.Errorf("spec.haproxy.backends: %q: HAProxy's names have letters, digits and .:_- alone", b)
		}
	}
	return d, nil
}

// Every implements balancer.Driver.
func (*Driver) Every() time.Duration { return every }

// Volatile implements balancer.Driver.
func (*Driver) Volatile() bool { return true }

// Discover implements balancer.Driver. It returns the memberships in all processes.
func (d *Driver) Discover(ctx context.Context, node balancer.Node) ([]balancer.Membership, error) {
	own, err := addresses(node)
	if err != nil {
		return nil, err
	}
	all, err := each(d.endpoints, func(e endpoint) ([]server, error) { return d.serversOf(ctx, e) })
	memberships := map[balancer.Membership]bool{}
	for _, s := range slices.Concat(all...) {
		if slices.Contains(own, s.address) {
			memberships[s.membership()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(memberships), func(a, b balancer.Membership) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Member, b.Member), cmp.Compare(a.Port, b.Port), strings.Compare(a.Address, b.Address))
	}), err
}

// Elsewhere implements balancer.Driver.
func (*Driver) Elsewhere(node balancer.Node, m balancer.Membership) bool {
	own, err := addresses(node)
	address, invalid := netip.ParseAddr(m.Address)
	return err == nil && (invalid != nil || !slices.Contains(own, address))
}

// addresses returns the IP addresses of a Node. It returns ErrNoIdentity if there are none.
func addresses(node balancer.Node) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, text := range node.Addresses {
		if address, err := netip.ParseAddr(text); err == nil {
			all = append(all, address.Unmap())
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("node %q has no IP address: %w", node.Name, balancer.ErrNoIdentity)
	}
	return all, nil
}

// serversOf returns the servers of the backends in the spec, or of all backends.
func (d *Driver) serversOf(ctx context.Context, e endpoint) ([]server, error) {
	servers, err := e.servers(ctx)
	if err != nil || len(d.backends) == 0 {
		return servers, err
	}
	for _, b := range d.backends {
		if !slices.ContainsFunc(servers, func(s server) bool { return s.backend == b }) {
			return nil, fmt.Errorf("HAProxy at %s has no server in a backend %q: correct the name, or take it out of the LoadBalancer", e, b)
		}
	}
	return slices.DeleteFunc(servers, func(s server) bool { return !slices.Contains(d.backends, s.backend) }), nil
}

// Status implements balancer.Driver. It combines the processes: a member is Attached if at least one process sends it
// new connections, and its connections are the sum of all processes.
func (d *Driver) Status(ctx context.Context, memberships []balancer.Membership) ([]balancer.Status, error) {
	all, err := each(d.endpoints, func(e endpoint) ([]server, error) { return e.serversWithConnections(ctx) })
	if len(all) == 0 {
		return nil, err
	}
	statuses := make([]balancer.Status, len(memberships))
	for i, m := range memberships {
		statuses[i] = status(m, all)
		statuses[i].Partial = err != nil
	}
	return statuses, err
}

// Drain implements balancer.Driver. It skips a server that has lost its address: the drain would apply to the next host
// with that server name.
func (d *Driver) Drain(ctx context.Context, memberships []balancer.Membership) error {
	return d.set(ctx, memberships, "drain", func(s server) bool { return s.address.IsValid() && !s.disabled() && !s.forced() })
}

// Restore implements balancer.Driver. It only ends a drain: a server in maintenance stays there, and a weight of zero
// stays. It restores a server that has lost its address, so that the drain does not apply to the next host with that
// server name.
func (d *Driver) Restore(ctx context.Context, memberships []balancer.Membership) error {
	return d.set(ctx, memberships, "ready", func(s server) bool { return s.admin&(forcedDrain|forcedMaintenance) == forcedDrain })
}

// set sets the state of each server for which wanted returns true, in every process that answers. HAProxy has no
// conditional command, so another party may change a server between the read and the command.
func (d *Driver) set(ctx context.Context, memberships []balancer.Membership, state string, wanted func(server) bool) error {
	_, err := each(d.endpoints, func(e endpoint) (struct{}, error) {
		servers, err := e.servers(ctx)
		if err != nil {
			return struct{}{}, err
		}
		var errs []error
		for _, s := range servers {
			if wanted(s) && slices.ContainsFunc(memberships, s.is) {
				errs = append(errs, e.do(ctx, "set server "+s.backend+"/"+s.name+" state "+state))
			}
		}
		return struct{}{}, errors.Join(errs...)
	})
	return err
}

// each runs call for all endpoints concurrently. It returns the results of the endpoints that answered, in order, and
// the joined errors of the others.
func each[T any](endpoints []endpoint, call func(endpoint) (T, error)) ([]T, error) {
	answers, errs := make([]T, len(endpoints)), make([]error, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() { answers[i], errs[i] = call(e) })
	}
	wg.Wait()
	var answered []T
	for i, err := range errs {
		if err == nil {
			answered = append(answered, answers[i])
		}
	}
	return answered, errors.Join(errs...)
}

// status combines the states of a membership in all processes.
func status(m balancer.Membership, processes [][]server) balancer.Status {
	seen := map[balancer.State]bool{}
	var connections int64
	var others *int
	for _, servers := range processes {
		member := server{serverKey: serverKey{m.Pool, m.Member}}
		if i := slices.IndexFunc(servers, func(s server) bool { return s.is(m) }); i >= 0 {
			member = servers[i]
			seen[member.state()] = true
			connections += member.connections
		}
		if n, known := othersOf(member, servers); known && (others == nil || n < *others) {
			others = &n
		}
	}
	for _, state := range []balancer.State{balancer.Attached, balancer.Draining, balancer.Disabled} {
		if !seen[state] {
			continue
		}
		if state == balancer.Draining && connections == 0 {
			state = balancer.Drained
		}
		return balancer.Status{State: state, Connections: &connections, Others: others}
	}
	return balancer.Status{State: balancer.Absent, Others: others}
}

// othersOf returns how many other members of the backend get new connections. known is false if the process has no such
// backend. Another port of the same address does not count as another member.
func othersOf(member server, servers []server) (n int, known bool) {
	for _, s := range servers {
		if s.backend != member.backend {
			continue
		}
		known = true
		if s.serves() && (s.address != member.address || !s.address.IsValid() && s.serverKey != member.serverKey) {
			n++
		}
	}
	return n, known
}
