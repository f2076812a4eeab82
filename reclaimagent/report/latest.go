// SPDX-License-Identifier: Apache-2.0

package report

// latest holds the newest value that its only reader has not received.
type latest[T any] chan T

func newLatest[T any]() latest[T] { return make(latest[T], 1) }

// put replaces a value that was not received. It does not block. Only one goroutine at a time may call it.
func (l latest[T]) put(v T) {
	select {
	case <-l:
	default:
	}
	l <- v
}
