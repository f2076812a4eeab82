// SPDX-License-Identifier: Apache-2.0

package audit

import "io"

// Begin returns a Log like Open does, for another writer.
func Begin(out io.Writer) *Log { return begin(New(out)) }

// Backlog is how many lines may wait.
const Backlog = backlog

// Stop ends the background writer.
func (l *Log) Stop() { close(l.waiting) }
