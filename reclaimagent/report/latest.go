// SPDX-License-Identifier: Apache-2.0

package report

// Latest holds the newest value that its only reader has not received.
type Latest[T any] chan T

// NewLatest returns a Latest without a value.
func NewLatest[T any]() Latest[T] { return make(Latest[T], 1) }

// Put replaces a value that was not received. It does not block. Only one goroutine at a time may call it.
func (l Latest[T]) Put(v T) {
	select {
	case <-l:
	default:
	}
	l <- v
}
