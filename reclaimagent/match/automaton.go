// SPDX-License-Identifier: Apache-2.0

package match

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
)

const (
	// none means that no pattern was found.
	none = math.MaxInt32

	// maxTable bounds the entries of the transition table for large pattern sets. 64 Ki entries use 256 KiB. They fit
	// the first bytes of a hundred patterns, where a scan spends most of its time.
	maxTable = 1 << 16
)

// automaton finds many patterns in one pass (Aho and Corasick, CACM 18(6), 1975). The cost is linear in the text, for
// any patterns and text. States are numbered in breadth-first order, so that the children of a state have adjacent
// numbers. The first states, which are near the root, have their transitions in a table. The other states follow
// failure links.
type automaton struct {
	// class maps a byte to its column. Bytes that occur in no pattern share column 0. A NUL has the column of a blank,
	// because it separates arguments.
	class [256]uint8
	// begins has the bytes that leave the root state. Most bytes of a text do not; skipping them halves the time.
	begins [256]bool
	// next holds one row of 1<<shift columns for each state below dense.
	next  []int32
	shift uint8
	dense int32

	// first[s] is the first child of state s, first[s+1] the end of its children.
	first []int32
	// label is the column by which a state is entered.
	label []uint8
	// fail is the state of the longest suffix that is also a prefix of a pattern.
	fail []int32
	// found is the first pattern, in list order, that ends in a state.
	found []int32
}

// ranked is a pattern with its index in the list.
type ranked struct {
	text  string
	index int32
}

// span represents a state during construction: the sorted patterns that share the first depth bytes.
type span struct{ lo, hi, depth int }

func compile(patterns []string) *automaton {
	var sorted []ranked
	for i, p := range patterns {
		if p != "" && !strings.ContainsRune(p, 0) {
			sorted = append(sorted, ranked{text: p, index: int32(min(i, none-1))})
		}
	}
	slices.SortFunc(sorted, func(a, b ranked) int {
		return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.index, b.index))
	})
	a := &automaton{}
	width := a.classify(sorted)
	a.shift = uint8(bits.Len(uint(width - 1))) //nolint:gosec // at most 8
	a.grow(sorted)
	a.dense = int32(min(len(a.label), maxTable>>a.shift)) //nolint:gosec // at most maxTable
	a.next = make([]int32, int(a.dense)<<a.shift)
	a.link()
	for b := range a.begins {
		a.begins[b] = a.step(0, a.class[b]) != 0
	}
	return a
}

// classify assigns columns to the bytes that occur in patterns. It returns the number of columns.
func (a *automaton) classify(sorted []ranked) int {
	var used [256]bool
	for _, p := range sorted {
		for _, b := range []byte(p.text) {
			used[b] = true
		}
	}
	width := 1
	for b := range used {
		if used[b] && width < 256 {
			a.class[b] = uint8(width)
			width++
		}
	}
	a.class[0] = a.class[' ']
	return width
}

// grow numbers the states and fills first, label and found.
func (a *automaton) grow(sorted []ranked) {
	queue := []span{{lo: 0, hi: len(sorted)}}
	a.label = []uint8{0}
	for s := 0; s < len(queue); s++ {
		at := queue[s]
		a.first = append(a.first, int32(len(queue))) //nolint:gosec // states are fewer than pattern bytes
		ends := int32(none)
		// The sort order puts patterns that end here first.
		for at.lo < at.hi && len(sorted[at.lo].text) == at.depth {
			ends = min(ends, sorted[at.lo].index)
			at.lo++
		}
		a.found = append(a.found, ends)
		for at.lo < at.hi {
			b := sorted[at.lo].text[at.depth]
			child := span{lo: at.lo, hi: at.lo, depth: at.depth + 1}
			for child.hi < at.hi && sorted[child.hi].text[at.depth] == b {
				child.hi++
			}
			queue = append(queue, child)
			a.label = append(a.label, a.class[b])
			at.lo = child.hi
		}
	}
	a.first = append(a.first, int32(len(queue))) //nolint:gosec // as above
}

// link fills fail and next, and adds to each state the patterns that end in its suffixes. A suffix is shorter, so
// breadth-first order has processed its state before.
func (a *automaton) link() {
	a.fail = make([]int32, len(a.label))
	width := int32(1) << a.shift
	for s := range int32(len(a.label)) { //nolint:gosec // states are numbered by int32
		if s < a.dense && s > 0 {
			copy(a.next[s<<a.shift:][:width], a.next[a.fail[s]<<a.shift:])
		}
		for child := a.first[s]; child < a.first[s+1]; child++ {
			if s > 0 {
				a.fail[child] = a.step(a.fail[s], a.label[child])
			}
			a.found[child] = min(a.found[child], a.found[a.fail[child]])
		}
		if s < a.dense {
			for child := a.first[s]; child < a.first[s+1]; child++ {
				a.next[s<<a.shift|int32(a.label[child])] = child
			}
		}
	}
}

// step returns the next state for a byte of column c.
func (a *automaton) step(s int32, c uint8) int32 {
	for s >= a.dense {
		for child := a.first[s]; child < a.first[s+1]; child++ {
			if a.label[child] == c {
				return child
			}
		}
		s = a.fail[s]
	}
	return a.next[s<<a.shift|int32(c)]
}

// run processes text from state s. It returns the last state, and the first pattern, in list order, of best and the
// patterns found.
func (a *automaton) run(s, best int32, text []byte) (state, found int32) {
	for i := 0; i < len(text); i++ {
		if s == 0 {
			for i < len(text) && !a.begins[text[i]] {
				i++
			}
			if i == len(text) {
				break
			}
		}
		c := a.class[text[i]]
		if s < a.dense {
			s = a.next[s<<a.shift|int32(c)]
		} else {
			s = a.step(s, c)
		}
		if a.found[s] < best {
			best = a.found[s]
		}
	}
	return s, best
}
