// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"context"
	"errors"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

// Exit codes of the agent.
const (
	// ExitOK means a graceful end, a report by --oneshot, or a match found by check.
	ExitOK = 0
	// ExitFailure means any other failure. With --oneshot it also means that there was nothing to report, with check
	// that no process matches.
	ExitFailure = 1
	// ExitUsage means an invalid flag, configuration, or environment.
	ExitUsage = 2
	// ExitIdentity means that a match was not reported, because the Node describes another machine.
	ExitIdentity = 3
	// ExitDetector means that the kernel does not announce processes, with --detector=netlink.
	ExitDetector = 4
)

// ErrUsage is wrapped by errors about flags, configuration and environment.
var ErrUsage = errors.New("cannot start")

// ExitCode returns the exit code for the error of [Run].
func ExitCode(err error) int {
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ExitOK
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case errors.Is(err, report.ErrHostIdentity):
		return ExitIdentity
	case errors.Is(err, procevents.ErrUnavailable):
		return ExitDetector
	default:
		return ExitFailure
	}
}
