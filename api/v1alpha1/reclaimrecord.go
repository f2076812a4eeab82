// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxReclaimReason bounds what a Node may write into our objects, in characters:
// a pattern has at most as many.
const maxReclaimReason = 256

// askedByPerson begins the reason of a request that no Node made.
const askedByPerson = "asked by a person"

// askedBefore is the reason of a request whose own reason was lost.
const askedBefore = "requested earlier; somebody removed the request while the machine was leaving"

// replaced is the reason of a served request whose record was lost with the object's metadata.
const replaced = "requested earlier; the reason was lost when the ScheduledMachine was replaced"

// ReclaimRecord is what is remembered of an emergency reclaim: which Node asked,
// why and when, in the Node's own words. It lives in an annotation. A person who
// asks writes it there too; then no Node asked, and nodeUID is empty.
//
// +kubebuilder:object:generate=false
type ReclaimRecord struct {
	// Node is the name of the Node that asked, or that a person asked for; empty if
	// there was none.
	Node string `json:"node"`
	// NodeUID tells the Node from a later one of the same name.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Reason is what the agent or the person wrote, empty when it wrote nothing.
	Reason string `json:"reason,omitempty"`
	// RequestedAt is what the agent wrote, empty when it wrote nothing. It is for
	// people, and tells one request from the next; no decision trusts its clock.
	RequestedAt string `json:"requestedAt,omitempty"`
	// StoredAt is when the workload cluster's API server stored a request without a time. It tells that request from the next
	// one on the same Node; empty if RequestedAt is a time, or where an older manager wrote the record.
	StoredAt string `json:"storedAt,omitempty"`
	// Of is the name of the ScheduledMachine that was asked, if it was another of the same
	// host. Then neither a Node nor a person asked for this one.
	Of string `json:"of,omitempty"`
	// SeenAt is when the manager counted and reported the request, by its clock; empty before.
	SeenAt string `json:"seenAt,omitempty"`
	// ServedAt is when the schedule was turned off because of it, by the manager's clock;
	// empty before, and where an older manager did so.
	ServedAt string `json:"servedAt,omitempty"`
}

// PersonsRequest is the record of a person who asks for a machine, whose Node is
// empty if it has none. Who asks is not known here; why they ask may be empty.
func PersonsRequest(node, why string, at time.Time) ReclaimRecord {
	reason := askedByPerson
	if why != "" {
		reason += ": " + why
	}
	return ReclaimRecord{Node: node, Reason: reason, RequestedAt: at.UTC().Format(time.RFC3339)}
}

// RecalledRequest is the record in place of one that was taken off while the machine was on
// its way to its owner, since that instant.
func RecalledRequest(node string, since time.Time) ReclaimRecord {
	return ReclaimRecord{Node: node, Reason: askedBefore, RequestedAt: since.UTC().Format(time.RFC3339)}
}

// RestoredRequest is the record in place of one that was lost after it had been served.
func RestoredRequest() ReclaimRecord { return ReclaimRecord{Reason: replaced} }

// ByPerson reports whether a person wrote the request on the ScheduledMachine:
// what a Node asks always names the Node's UID.
func (r ReclaimRecord) ByPerson() bool { return r.NodeUID == "" && r.Of == "" }

// Lost reports whether the request itself was lost, and with it who made it.
func (r ReclaimRecord) Lost() bool { return r.Reason == askedBefore || r.Reason == replaced }

// Screened returns the record without what its author could smuggle into events and
// conditions: more than one line, characters that nobody sees, excessive length.
func (r ReclaimRecord) Screened() ReclaimRecord {
	r.Node, r.NodeUID = screen(r.Node), types.UID(screen(string(r.NodeUID)))
	r.Reason, r.RequestedAt = screen(r.Reason), screen(r.RequestedAt)
	r.Of, r.SeenAt, r.ServedAt, r.StoredAt = screen(r.Of), screen(r.SeenAt), screen(r.ServedAt), screen(r.StoredAt)
	return r
}

// Same reports whether both records are of one request of a Node.
func (r ReclaimRecord) Same(other ReclaimRecord) bool {
	return r.Node == other.Node && r.NodeUID == other.NodeUID && r.RequestedAt == other.RequestedAt &&
		(r.StoredAt == other.StoredAt || r.StoredAt == "" || other.StoredAt == "")
}

func screen(s string) string {
	s = clip.Line(s)
	if runes := []rune(s); len(runes) > maxReclaimReason {
		return strings.TrimSpace(string(runes[:maxReclaimReason]))
	}
	return s
}

// Seen returns the record of a request that the manager counts at that instant.
func (r ReclaimRecord) Seen(at time.Time) ReclaimRecord {
	r.SeenAt = at.UTC().Format(time.RFC3339)
	return r
}

// Served returns the record of a request because of which the schedule is turned off at
// that instant.
func (r ReclaimRecord) Served(at time.Time) ReclaimRecord {
	r.ServedAt = at.UTC().Format(time.RFC3339)
	return r
}

// Why is the reason, or words for a request that gave none.
func (r ReclaimRecord) Why() string {
	if strings.TrimSpace(r.Reason) == "" {
		return "reclaim trigger on Node"
	}
	return r.Reason
}

// Requested is the sentence of the event that starts an emergency reclaim.
func (r ReclaimRecord) Requested() string {
	if r.RequestedAt == "" {
		return "Emergency reclaim requested: " + r.Why()
	}
	return "Emergency reclaim requested (" + r.RequestedAt + "): " + r.Why()
}

// Where is the sentence of the status while an emergency reclaim is under way.
func (r ReclaimRecord) Where() string {
	s := "Emergency reclaim"
	if r.Of != "" {
		s += ", requested for the same host through " + r.Of + ","
	}
	if r.Node != "" {
		s += " on node " + r.Node
	}
	if r.RequestedAt != "" {
		s += " at " + r.RequestedAt
	}
	if strings.TrimSpace(r.Reason) != "" {
		s += ": " + r.Reason
	}
	return s
}

// String returns the annotation's value.
func (r ReclaimRecord) String() string {
	b, err := json.Marshal(r)
	if err != nil { // strings always marshal
		return "{}"
	}
	return string(b)
}

// ParseReclaimRecord reads an annotation's value, screened: anybody who may edit the
// object may have written it. An unreadable value still means that somebody asked: it
// becomes the reason.
func ParseReclaimRecord(value string) ReclaimRecord {
	var r ReclaimRecord
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		r = ReclaimRecord{Reason: value}
	}
	return r.Screened()
}
