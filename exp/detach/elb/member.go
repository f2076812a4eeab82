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

// instanceID matches the IDs of EC2 instances. Managed instances outside EC2, such as mi-0123456789abcdef0, cannot be
// targets.
var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8,17}$`)

// Markers in Membership.Member for the attributes of a target besides its ID. Restore registers the target with the
// same attributes.
const (
	zoneMark = ",zone="
	quicMark = ",quic="
)

// InstanceID returns the EC2 instance ID of a Node: the last part of a provider ID such as
// aws:///eu-central-1a/i-0123456789abcdef0. It is empty for any other machine.
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

// elsewhere reports whether the provider ID belongs to another cloud, so that the machine is no EC2 instance.
func elsewhere(providerID string) bool {
	scheme, _, named := strings.Cut(providerID, "://")
	return named && scheme != "aws"
}

// identity holds the IDs by which targets refer to a Node.
type identity struct {
	instance  string
	addresses map[netip.Addr]bool
}

// identify returns the identity of a Node. It skips addresses that no target can have and addresses that many machines
// share, such as link-local ones.
func identify(node balancer.Node) identity {
	id := identity{InstanceID(node.ProviderID), map[netip.Addr]bool{}}
	for _, text := range node.Addresses {
		address, err := netip.ParseAddr(text)
		if err == nil && address.Zone() == "" && address.Unmap().IsGlobalUnicast() {
			id.addresses[address.Unmap()] = true
		}
	}
	return id
}

// empty reports whether no target can match the Node.
func (i identity) empty() bool { return i.instance == "" && len(i.addresses) == 0 }

// is reports whether a target ID matches the Node.
func (i identity) is(target string) bool {
	if instanceID.MatchString(target) {
		return target == i.instance
	}
	address, err := netip.ParseAddr(target)
	return err == nil && i.addresses[address.Unmap()]
}

// membership returns the membership of a target in a group. A target that is an IP address lasts if the machine is no
// EC2 instance, because the machine may come back. An EC2 instance never does, and AWS may assign its address to
// another one.
func (i identity) membership(group string, target *types.TargetDescription) balancer.Membership {
	id := aws.ToString(target.Id)
	m := balancer.Membership{Pool: group, Member: id, Port: aws.ToInt32(target.Port), Persistent: i.instance == ""}
	if zone := aws.ToString(target.AvailabilityZone); !instanceID.MatchString(id) && zone != "" { // The zone of an instance is fixed.
		m.Member += zoneMark + zone
	}
	if quic := aws.ToString(target.QuicServerId); quic != "" {
		m.Member += quicMark + quic
	}
	return m
}

// target returns the target of a membership, with all attributes of its registration.
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

// targets returns the targets of memberships.
func targets(members []balancer.Membership) []types.TargetDescription {
	all := make([]types.TargetDescription, len(members))
	for i, m := range members {
		all[i] = target(m)
	}
	return all
}
