// SPDX-License-Identifier: Apache-2.0

package nodetaints

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Format returns the record of applied taints as JSON. applied must be sorted.
func Format(applied []Taint) string {
	b, err := json.Marshal(applied)
	if err != nil { // strings always marshal
		return "[]"
	}
	return string(b)
}

// Parse returns the taints of a record, sorted. An invalid record, or one that 5-Spot cannot have written, is an error.
// A guess could remove taints of other writers.
func Parse(record string) ([]Taint, error) {
	var applied []Taint
	if err := json.Unmarshal([]byte(record), &applied); err != nil {
		return nil, err
	}
	if applied == nil {
		return nil, errors.New("is not a list")
	}
	slices.SortFunc(applied, compare)
	for i, t := range applied {
		switch {
		case t.Key == "" || t.Effect == "":
			return nil, fmt.Errorf("names a taint without key or effect: %q", t)
		case Reserved(t.Key) != "":
			return nil, fmt.Errorf("names %q, which 5-Spot never applies", t)
		case i > 0 && t.sameAs(applied[i-1]):
			return nil, fmt.Errorf("names %q twice", t)
		}
	}
	return applied, nil
}
