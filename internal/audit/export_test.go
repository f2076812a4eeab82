// SPDX-License-Identifier: Apache-2.0

package audit

import "io"

// Begin returns a Log as Open does, of another file.
func Begin(out io.Writer) *Log { return begin(New(out)) }

// Backlog is how many lines may wait.
const Backlog = backlog

// Stop ends what writes.
func (l *Log) Stop() { close(l.waiting) }
