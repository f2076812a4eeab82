// SPDX-License-Identifier: Apache-2.0

package process

// Patient returns t for a reader that nobody takes over from. On a busy machine a test may
// not run for longer than a reader may hang, and would be left behind.
func Patient(t *Table) *Table {
	t.turn = &turn{aside: t.aside, hung: make(chan struct{})}
	t.turn.watched.Store(true) // By nobody: no timer is started.
	return t
}
