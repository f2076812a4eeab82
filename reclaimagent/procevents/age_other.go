// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package procevents

import "time"

// Age returns zero: only Linux sends events.
func (*Event) Age() time.Duration { return 0 }
