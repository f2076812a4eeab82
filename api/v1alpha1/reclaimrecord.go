// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// ReclaimRecord is what is remembered of an emergency reclaim: which Node asked,
// why and when, in the Node's own words. It lives in an annotation.
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

// String returns the annotation's value.
func (r ReclaimRecord) String() string {
	b, err := json.Marshal(r)
	if err != nil { // strings always marshal
		return "{}"
	}
	return string(b)
}

// ParseReclaimRecord reads an annotation's value. An unreadable value is an
// error together with a record that keeps the text as its reason: it still means
// that somebody asked.
func ParseReclaimRecord(value string) (ReclaimRecord, error) {
	var r ReclaimRecord
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return ReclaimRecord{Reason: value}, fmt.Errorf("reading reclaim record: %w", err)
	}
	return r, nil
}
