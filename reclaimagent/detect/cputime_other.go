// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package detect

import "time"

// CPUTime returns 0: there is no /proc to poll.
func CPUTime() time.Duration { return 0 }
