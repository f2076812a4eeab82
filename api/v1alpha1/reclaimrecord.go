// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/types"
)

// maxReclaimReason bounds what a Node may write into our objects, in characters:
// a pattern has at most as many.
const maxReclaimReason = 256

// ReclaimRecord is what is remembered of an emergency reclaim: which Node asked,
// why and when, in the Node's own words. It lives in an annotation.
//
// +kubebuilder:object:generate=false
type ReclaimRecord struct {
	// Node is the name of the Node that asked.
	Node string `json:"node"`
	// NodeUID tells the Node from a later one of the same name.
	NodeUID types.UID `json:"nodeUID,omitempty"`
	// Reason is what the agent wrote, empty when it wrote nothing.
	Reason string `json:"reason,omitempty"`
	// RequestedAt is what the agent wrote, empty when it wrote nothing. It is for
	// people, and tells one request from the next; no decision trusts its clock.
	RequestedAt string `json:"requestedAt,omitempty"`
}

// Screened returns the record without what a Node could smuggle into events and
// conditions: control characters and excessive length.
func (r ReclaimRecord) Screened() ReclaimRecord {
	r.Reason, r.RequestedAt = screen(r.Reason), screen(r.RequestedAt)
	return r
}

func screen(s string) string {
	s = strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, s))
	if runes := []rune(s); len(runes) > maxReclaimReason {
		return string(runes[:maxReclaimReason])
	}
	return s
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
	s := "Emergency reclaim on node " + r.Node
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

// ParseReclaimRecord reads an annotation's value. An unreadable value still means
// that somebody asked: it becomes the reason.
func ParseReclaimRecord(value string) ReclaimRecord {
	var r ReclaimRecord
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return ReclaimRecord{Reason: value}.Screened()
	}
	return r
}
