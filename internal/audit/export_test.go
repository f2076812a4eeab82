// SPDX-License-Identifier: Apache-2.0

package audit

// Begin returns a Log as Open does, of another file.
var Begin = begin

// Backlog is how many lines may wait.
const Backlog = backlog

// Stop ends what writes.
func (l *Log) Stop() { close(l.waiting) }
