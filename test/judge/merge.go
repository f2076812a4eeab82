// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"iter"
	"slices"
	"time"
)

// late is by how much a request may be recorded after a later one. An API server limits a request to a minute.
const late = 90 * time.Second

// Merge returns the records of several logs in the order of their start. Logs are in the order of their end, and a
// request may end after one that it caused. Merge buffers the records of 90 s. An error ends the sequence.
func Merge(logs ...iter.Seq2[Record, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var waiting []Record
		for r, err := range interleave(logs) {
			if err != nil {
				yield(Record{}, err)
				return
			}
			waiting = insert(waiting, r)
			var more bool
			if waiting, more = handOn(waiting, late, yield); !more {
				return
			}
		}
		handOn(waiting, -1, yield)
	}
}

// handOn yields the records that are older than age before the last one, and returns the others.
func handOn(waiting []Record, age time.Duration, yield func(Record, error) bool) (rest []Record, more bool) {
	for len(waiting) > 0 && waiting[len(waiting)-1].At.Sub(waiting[0].At) > age {
		if !yield(waiting[0], nil) {
			return nil, false
		}
		waiting = waiting[1:]
	}
	return waiting, true
}

// insert inserts r after all records that did not start later. Most records start last.
func insert(waiting []Record, r Record) []Record {
	i := len(waiting)
	for i > 0 && r.At.Before(waiting[i-1].At) {
		i--
	}
	return slices.Insert(waiting, i, r)
}

// A cursor is a position in a log.
type cursor struct {
	head Record
	err  error
	more bool
	next func() (Record, error, bool)
}

func (c *cursor) advance() { c.head, c.err, c.more = c.next() }

// interleave reads all logs in parallel, so that no record comes much too late.
func interleave(logs []iter.Seq2[Record, error]) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var open []*cursor
		for _, log := range logs {
			next, stop := iter.Pull2(log)
			defer stop()
			c := &cursor{next: next}
			c.advance()
			open = append(open, c)
		}
		for {
			open = slices.DeleteFunc(open, func(c *cursor) bool { return !c.more })
			if len(open) == 0 {
				return
			}
			first := slices.MinFunc(open, func(a, b *cursor) int { return a.head.At.Compare(b.head.At) })
			if !yield(first.head, first.err) {
				return
			}
			first.advance()
		}
	}
}
