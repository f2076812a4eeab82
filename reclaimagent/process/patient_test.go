// SPDX-License-Identifier: Apache-2.0

package process

// Patient returns t without the timer that abandons blocked reads. On a busy machine a test may not run for longer than
// that, and would be abandoned.
func Patient(t *Table) *Table {
	t.watchdog = &readWatchdog{hungProcesses: t.hungProcesses, hung: make(chan struct{})}
	t.watchdog.watched.Store(true) // No timer starts.
	return t
}
