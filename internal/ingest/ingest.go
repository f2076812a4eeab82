// SPDX-License-Identifier: Apache-2.0

// Package ingest validates what other actors report about a Machine, its Node and a request, compared with what
// was known before. A rejected value is never used, and it does not count as absent: the known value stays in
// effect. The package is pure. It imports no Kubernetes API package and holds no state.
package ingest

import (
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// A Reason is why a report is rejected. It is the value of a metric label.
type Reason string

// The reasons.
const (
	// NodeRef means that a Machine reports another Node than before, no Node any more, or the Node of another
	// Machine.
	NodeRef Reason = "node_ref"
	// ProviderID means the same for the provider ID.
	ProviderID Reason = "provider_id"
	// MachineID means that the Node of a Machine reports another machine ID than at first.
	MachineID Reason = "machine_id"
	// Annotation means that an annotation of a request on a Node is not in the form that the agent writes.
	// People write them by hand.
	Annotation Reason = "annotation"
	// Ack means that the response to a creation is not the requested object.
	Ack Reason = "ack"
)

// Reasons has every reason.
var Reasons = []Reason{NodeRef, ProviderID, MachineID, Annotation, Ack}

// A Rejection is a report that is rejected.
type Rejection struct {
	Reason Reason
	// Message has the field, the reported value, the value in effect, and what to do. It has no other content,
	// so that the same rejection always has the same message.
	Message string
}

// A Host identifies the host of a Machine. An empty field is unknown.
type Host struct {
	// Node is the name of its Node. ProviderID is its ID at the provider. MachineID is the machine ID of its
	// operating system.
	Node, ProviderID, MachineID string
}

// MaxMachineID is the maximum length of a machine ID. A longer one is rejected.
const MaxMachineID = 253

// A Claim is what one Machine reports about its host.
type Claim struct {
	// Name is the name of the Machine.
	Name string
	// Reported is the report. Known is what was accepted for this Machine before.
	Reported, Known Host
	// Running reports that the Machine is in the phase Running, in which no field may be missing.
	Running bool
	// NodeOf and ProviderIDOf name another Machine of the Cluster that reports the same value, empty if there
	// is none. They are not needed for a value that is Known.
	NodeOf, ProviderIDOf string
}

// Screen returns the accepted values and the rejections. A known value stays in effect as long as the Machine
// is the same. A value that several Machines report is accepted only for the Machine that had it before.
func Screen(c Claim) (Host, []Rejection) {
	var h Host
	var rejected []Rejection
	note := func(r Reason, why string) {
		if why != "" {
			rejected = append(rejected, Rejection{Reason: r, Message: why})
		}
	}
	var why string
	h.Node, why = c.screen("status.nodeRef", c.Reported.Node, c.Known.Node, c.NodeOf)
	note(NodeRef, why)
	h.ProviderID, why = c.screen("spec.providerID", c.Reported.ProviderID, c.Known.ProviderID, c.ProviderIDOf)
	note(ProviderID, why)
	switch h.Node {
	case "":
	case c.Reported.Node:
		h.MachineID, why = c.machineID()
		note(MachineID, why)
	// The report comes from another Node, so its machine ID does not apply to this host.
	default:
		h.MachineID = c.Known.MachineID
	}
	return h, rejected
}

// howToResolve is the end of the message for a changed report.
const howToResolve = "put it back; if the host is meant to be another, let the machine leave and join again"

// screen returns the accepted value of a field, and why the report is rejected, empty if it is not.
func (c Claim) screen(field, reported, known, other string) (value, why string) {
	switch {
	case reported == known && reported != "":
		return known, ""
	case known != "" && reported == "":
		return known, fmt.Sprintf("Machine %s: %s is empty, and %q counts as before: %s", c.Name, field, known, howToResolve)
	case known != "":
		return known, fmt.Sprintf("Machine %s: %s is %q, and %q counts as before: %s", c.Name, field, reported, known, howToResolve)
	case reported == "" && c.Running:
		return "", fmt.Sprintf("Machine %s: %s is empty although the Machine is Running: check its provider and Cluster API", c.Name, field)
	case reported != "" && other != "":
		return "", fmt.Sprintf("Machine %s: %s is %q, which Machine %s has, too: find out whose it is, and delete the other", c.Name, field, reported, other)
	default:
		return reported, ""
	}
}

func (c Claim) machineID() (value, why string) {
	reported, known := c.Reported.MachineID, c.Known.MachineID
	switch {
	case reported == "" || reported == known:
		return known, ""
	case len(reported) > MaxMachineID:
		return known, fmt.Sprintf("Machine %s: the machine ID of its Node begins with %q and is longer than %d bytes: it is not known", c.Name, clip.To(reported, 16), MaxMachineID)
	case known != "":
		return known, fmt.Sprintf("Machine %s: the machine ID of its Node is %q, and %q counts, which it was at first: "+
			"if the host was installed anew, let the machine leave and join again; if not, another host has taken the name of the Node", c.Name, reported, known)
	default:
		return reported, ""
	}
}
