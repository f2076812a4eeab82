// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// instanceID is what IDs of instances look like. Those of servers that are not of EC2, such
// as mi-0123456789abcdef0, cannot be targets.
var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// What a member says besides the ID of a target, so that it can be registered as it was.
const (
	zoneMark = ",zone="
	quicMark = ",quic="
)

// InstanceID returns the ID of the instance that a Node is, which is the end of a providerID
// such as aws:///eu-central-1a/i-0123456789abcdef0, or nothing if it is none of EC2.
func InstanceID(providerID string) string {
	path, ok := strings.CutPrefix(providerID, "aws://")
	if !ok {
		return ""
	}
	parts := strings.Split(path, "/")
	id := parts[len(parts)-1]
	if len(parts) != 3 || parts[0] != "" || !instanceID.MatchString(id) {
		return ""
	}
	return id
}

// elsewhere says that a machine is of another cloud, or of none, and so no instance.
func elsewhere(providerID string) bool {
	scheme, _, named := strings.Cut(providerID, "://")
	return named && scheme != "aws"
}

// identity is how targets name a Node.
type identity struct {
	instance  string
	addresses map[netip.Addr]bool
}

// identify returns how targets name a Node. An address that no target can have, or that
// many machines have, names nobody.
func identify(node balancer.Node) identity {
	who := identity{InstanceID(node.ProviderID), map[netip.Addr]bool{}}
	for _, text := range node.Addresses {
		address, err := netip.ParseAddr(text)
		if err == nil && address.Zone() == "" && address.Unmap().IsGlobalUnicast() {
			who.addresses[address.Unmap()] = true
		}
	}
	return who
}

// nobody says that no target can be the Node.
func (i identity) nobody() bool { return i.instance == "" && len(i.addresses) == 0 }

// is says that a target is the Node.
func (i identity) is(target string) bool {
	if instanceID.MatchString(target) {
		return target == i.instance
	}
	address, err := netip.ParseAddr(target)
	return err == nil && i.addresses[address.Unmap()]
}

// membership returns the place of a target in a group. A target that is an address lasts: its
// machine may come back. An instance of EC2 never does, and AWS gives its address to another one.
func (i identity) membership(group string, target *types.TargetDescription) balancer.Membership {
	id := aws.ToString(target.Id)
	m := balancer.Membership{Pool: group, Member: id, Port: aws.ToInt32(target.Port), Lasts: i.instance == ""}
	if zone := aws.ToString(target.AvailabilityZone); !instanceID.MatchString(id) && zone != "" { // An instance has that of its own.
		m.Member += zoneMark + zone
	}
	if quic := aws.ToString(target.QuicServerId); quic != "" {
		m.Member += quicMark + quic
	}
	return m
}

// target returns the target of a place, with everything that it was registered with.
func target(m balancer.Membership) types.TargetDescription {
	rest, quic, hasQUIC := strings.Cut(m.Member, quicMark)
	id, zone, hasZone := strings.Cut(rest, zoneMark)
	t := types.TargetDescription{Id: &id}
	if m.Port != 0 {
		t.Port = &m.Port
	}
	if hasZone {
		t.AvailabilityZone = &zone
	}
	if hasQUIC {
		t.QuicServerId = &quic
	}
	return t
}

// targets returns the targets of places.
func targets(members []balancer.Membership) []types.TargetDescription {
	all := make([]types.TargetDescription, len(members))
	for i, m := range members {
		all[i] = target(m)
	}
	return all
}
