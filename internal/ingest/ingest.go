// SPDX-License-Identifier: Apache-2.0

// Package ingest answers one question: what of that which other actors say is to be
// believed, given what was known before? It knows nothing about Kubernetes, and forgets at
// once: what was known is an argument. What it rejects is never applied and is no absence:
// what was known stays.
package ingest

import (
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// A Reason is why something is rejected. It is the value of a label of a metric.
type Reason string

// The reasons.
const (
	// NodeRef means that a Machine names another Node than before, none any more, or that
	// of another Machine.
	NodeRef Reason = "node_ref"
	// ProviderID means the same of its provider's ID.
	ProviderID Reason = "provider_id"
	// MachineID means that the Node of a Machine has reported another machine ID than at
	// first.
	MachineID Reason = "machine_id"
	// Annotation means that an annotation of a request on a Node is not as an agent writes
	// it. People write them by hand.
	Annotation Reason = "annotation"
	// Ack means that the answer to a creation is not the object that was to be created.
	Ack Reason = "ack"
)

// Reasons are all of them.
var Reasons = []Reason{NodeRef, ProviderID, MachineID, Annotation, Ack}

// A Rejection is something that is not believed.
type Rejection struct {
	Reason Reason
	// Message names the field, what it says, what counts instead, and the way out. It
	// depends on nothing else, so that the same rejection is told once.
	Message string
}

// A Host is what is said of the host of a Machine. What is empty is not known.
type Host struct {
	// Node is the name of its Node, ProviderID what its provider calls it, and MachineID
	// what its operating system calls it.
	Node, ProviderID, MachineID string
}

// MaxMachineID is the bound of a machine ID. A longer one is none.
const MaxMachineID = 253

// A Claim is what one Machine says of its host.
type Claim struct {
	// Name is that of the Machine.
	Name string
	// Says is what it says, and Known what was believed of this very Machine before.
	Says, Known Host
	// Running says that it is in phase Running, in which nothing may be missing.
	Running bool
	// NodeOf and ProviderIDOf name another Machine of the Cluster that says the same, empty
	// if there is none. They need not be known where Says is what was believed before.
	NodeOf, ProviderIDOf string
}

// Screen returns what is to be believed of the host, and what is rejected. What was believed
// stays as long as the Machine is the same; what several say is believed of nobody who was
// not believed before.
func Screen(c Claim) (Host, []Rejection) {
	var h Host
	var rejected []Rejection
	note := func(r Reason, why string) {
		if why != "" {
			rejected = append(rejected, Rejection{Reason: r, Message: why})
		}
	}
	var why string
	h.Node, why = c.screen("status.nodeRef", c.Says.Node, c.Known.Node, c.NodeOf)
	note(NodeRef, why)
	h.ProviderID, why = c.screen("spec.providerID", c.Says.ProviderID, c.Known.ProviderID, c.ProviderIDOf)
	note(ProviderID, why)
	switch h.Node {
	case "":
	case c.Says.Node:
		h.MachineID, why = c.machineID()
		note(MachineID, why)
	default: // What another Node reports says nothing of this host.
		h.MachineID = c.Known.MachineID
	}
	return h, rejected
}

// wayOut ends the message about a Machine that changed.
const wayOut = "put it back; if the host is meant to be another, let the machine leave and join again"

// screen returns which value of a field counts, and why that is not the one that it has.
func (c Claim) screen(field, says, known, other string) (value, why string) {
	switch {
	case says == known && says != "":
		return known, ""
	case known != "" && says == "":
		return known, fmt.Sprintf("Machine %s: %s is empty, and %q counts as before: %s", c.Name, field, known, wayOut)
	case known != "":
		return known, fmt.Sprintf("Machine %s: %s is %q, and %q counts as before: %s", c.Name, field, says, known, wayOut)
	case says == "" && c.Running:
		return "", fmt.Sprintf("Machine %s: %s is empty although the Machine is Running: look at its provider and at Cluster API", c.Name, field)
	case says != "" && other != "":
		return "", fmt.Sprintf("Machine %s: %s is %q, which Machine %s has, too: find out whose it is, and delete the other", c.Name, field, says, other)
	default:
		return says, ""
	}
}

func (c Claim) machineID() (value, why string) {
	says, known := c.Says.MachineID, c.Known.MachineID
	switch {
	case says == "" || says == known:
		return known, ""
	case len(says) > MaxMachineID:
		return known, fmt.Sprintf("Machine %s: the machine ID of its Node begins with %q and is longer than %d bytes: it is not known", c.Name, clip.To(says, 16), MaxMachineID)
	case known != "":
		return known, fmt.Sprintf("Machine %s: the machine ID of its Node is %q, and %q counts, which it was at first: "+
			"if the host was installed anew, let the machine leave and join again; if not, another host has taken the name of the Node", c.Name, says, known)
	default:
		return says, ""
	}
}
