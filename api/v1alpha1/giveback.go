// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxGiveBacks bounds the list of GiveBacks: it is part of every copy of the object.
const MaxGiveBacks = 20

// milliseconds is RFC 3339 with the precision of a GiveBack.
const milliseconds = "2006-01-02T15:04:05.000Z07:00"

// GiveBack is the record of an emergency reclaim that was served. It does not change any more. ServedAt is when the
// schedule was turned off: the Machine was gone then.
//
// +kubebuilder:object:generate=false
type GiveBack struct {
	ReclaimRecord
	// DeletedAt is when the deletion of the Machine was accepted, by the manager's clock. It is empty if there was no
	// Machine, or if no manager ran while the Machine was being deleted.
	DeletedAt string `json:"deletedAt,omitempty"`
	// Hold is what the agent reported about its hold, nil if it reported none.
	Hold *HoldReport `json:"hold,omitempty"`
}

// Deleted returns the record with DeletedAt set to at, unless at is zero. A hold counts only if a Machine was deleted:
// otherwise it is the one of an earlier reclaim.
func (g GiveBack) Deleted(at time.Time, hold *HoldReport) GiveBack {
	if !at.IsZero() {
		g.DeletedAt, g.Hold = at.UTC().Format(milliseconds), hold
	}
	return g
}

// GiveBacks returns the latest reclaims that were served, the latest first. It returns none if the annotation cannot be
// parsed. The texts are screened, because every user who may edit the object may write them.
func (m *ScheduledMachine) GiveBacks() []GiveBack {
	var list []GiveBack
	if json.Unmarshal([]byte(m.Annotations[GiveBacksAnnotation]), &list) != nil {
		return nil
	}
	list = list[:min(len(list), MaxGiveBacks)]
	for i := range list {
		list[i].ReclaimRecord, list[i].DeletedAt = list[i].Screened(), screen(list[i].DeletedAt)
	}
	return list
}

// AddGiveBack adds a record, and drops the oldest one of a full list.
func (m *ScheduledMachine) AddGiveBack(g GiveBack) {
	list := append([]GiveBack{g}, m.GiveBacks()...)
	text, err := json.Marshal(list[:min(len(list), MaxGiveBacks)])
	if err != nil {
		return // Texts and numbers always marshal.
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, GiveBacksAnnotation, string(text))
}
