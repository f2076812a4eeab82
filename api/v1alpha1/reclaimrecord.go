// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxReclaimReason bounds each text of a ReclaimRecord, in characters, because a Node may write it. A pattern has at
// most as many.
const maxReclaimReason = 256

// askedByPerson is the first part of the reason of a request that a person made.
const askedByPerson = "asked by a person"

// askedBefore is the reason of a request whose own reason was lost.
const askedBefore = "requested earlier; the request was removed while the machine was leaving"

// replaced is the reason of a served request whose record was lost with the object's metadata.
const replaced = "requested earlier; the reason was lost when the ScheduledMachine was replaced"

// ReclaimRecord is the record of an emergency reclaim: which Node requested it, why and when. It is the value of an
// annotation on the ScheduledMachine. If a person made the request, nodeUID is empty.
//
// +kubebuilder:object:generate=false
type ReclaimRecord struct {
	// Node is the name of the Node that made the request, or of the machine that a person requested. It is empty if
	// there was none.
	Node string `json:"node"`
	// NodeUID distinguishes the Node from a later one with the same name.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Reason is the reason that the agent or the person wrote, possibly empty.
	Reason string `json:"reason,omitempty"`
	// RequestedAt is the time that the agent wrote, possibly empty. It is shown to people, and distinguishes two
	// requests. No decision depends on its clock.
	RequestedAt string `json:"requestedAt,omitempty"`
	// StoredAt is when the workload cluster's API server stored a request without a time. It distinguishes that request
	// from the next one on the same Node. It is empty if RequestedAt is a time.
	StoredAt string `json:"storedAt,omitempty"`
	// PropagatedFrom is the name of another ScheduledMachine for the same host, if the request was made there. Then
	// neither a Node nor a person made one here.
	PropagatedFrom string `json:"propagatedFrom,omitempty"`
	// SeenAt is when the manager counted and reported the request, by its clock. It is empty before that.
	SeenAt string `json:"seenAt,omitempty"`
	// ServedAt is when the manager turned the schedule off for the request, by its clock. It is empty before that.
	ServedAt string `json:"servedAt,omitempty"`
}

// PersonsRequest returns the record of a person's request. node is empty if the machine has no Node. why may be empty.
// The record does not identify the person.
func PersonsRequest(node, why string, at time.Time) ReclaimRecord {
	reason := askedByPerson
	if why != "" {
		reason += ": " + why
	}
	return ReclaimRecord{Node: node, Reason: reason, RequestedAt: at.UTC().Format(time.RFC3339)}
}

// RecalledRequest returns a record for a request that was removed while its reclaim was in progress. since is the start
// of the departure.
func RecalledRequest(node string, since time.Time) ReclaimRecord {
	return ReclaimRecord{Node: node, Reason: askedBefore, RequestedAt: since.UTC().Format(time.RFC3339)}
}

// RestoredRequest returns a record for a served request whose record was lost.
func RestoredRequest() ReclaimRecord { return ReclaimRecord{Reason: replaced} }

// ByPerson reports whether a person wrote the request on the ScheduledMachine. A Node's request always has the Node's
// UID.
func (r ReclaimRecord) ByPerson() bool { return r.NodeUID == "" && r.PropagatedFrom == "" }

// Lost reports whether the original request was lost, so that its author is unknown.
func (r ReclaimRecord) Lost() bool { return r.Reason == askedBefore || r.Reason == replaced }

// Screened returns the record with safe texts for Events and conditions: one line each, without invisible characters,
// and truncated.
func (r ReclaimRecord) Screened() ReclaimRecord {
	r.Node, r.NodeUID = screen(r.Node), types.UID(screen(string(r.NodeUID)))
	r.Reason, r.RequestedAt = screen(r.Reason), screen(r.RequestedAt)
	r.PropagatedFrom, r.SeenAt, r.ServedAt, r.StoredAt = screen(r.PropagatedFrom), screen(r.SeenAt), screen(r.ServedAt), screen(r.StoredAt)
	return r
}

// Same reports whether both records are about one request of a Node.
func (r ReclaimRecord) Same(other ReclaimRecord) bool {
	return r.Node == other.Node && r.NodeUID == other.NodeUID && r.RequestedAt == other.RequestedAt && r.StoredAt == other.StoredAt
}

func screen(s string) string {
	s = clip.Line(s)
	if runes := []rune(s); len(runes) > maxReclaimReason {
		return strings.TrimSpace(string(runes[:maxReclaimReason]))
	}
	return s
}

// Seen returns the record with SeenAt set to at.
func (r ReclaimRecord) Seen(at time.Time) ReclaimRecord {
	r.SeenAt = at.UTC().Format(time.RFC3339)
	return r
}

// Served returns the record with ServedAt set to at.
func (r ReclaimRecord) Served(at time.Time) ReclaimRecord {
	r.ServedAt = at.UTC().Format(time.RFC3339)
	return r
}

// Why returns the reason, or a default for a request without one.
func (r ReclaimRecord) Why() string {
	if strings.TrimSpace(r.Reason) == "" {
		return "reclaim trigger on Node"
	}
	return r.Reason
}

// Requested returns the note of the Event that starts an emergency reclaim.
func (r ReclaimRecord) Requested() string {
	if r.RequestedAt == "" {
		return "Emergency reclaim requested: " + r.Why()
	}
	return "Emergency reclaim requested (" + r.RequestedAt + "): " + r.Why()
}

// Where returns the status message during an emergency reclaim.
func (r ReclaimRecord) Where() string {
	s := "Emergency reclaim"
	if r.PropagatedFrom != "" {
		s += ", requested for the same host through " + r.PropagatedFrom + ","
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

// String returns the record as the annotation's value.
func (r ReclaimRecord) String() string {
	b, err := json.Marshal(r)
	if err != nil { // strings always marshal
		return "{}"
	}
	return string(b)
}

// ParseReclaimRecord parses an annotation's value, and screens it, because every user who may edit the object may write
// it. An invalid value still counts as a request: it becomes the reason.
func ParseReclaimRecord(value string) ReclaimRecord {
	var r ReclaimRecord
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		r = ReclaimRecord{Reason: value}
	}
	return r.Screened()
}
