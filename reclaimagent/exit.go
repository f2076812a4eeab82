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
	// ExitOK is a graceful end, a report by --oneshot, or a match found by check.
	ExitOK = 0
	// ExitFailure is any other failure, nothing to report by --oneshot, or no
	// match found by check.
	ExitFailure = 1
	// ExitUsage is a bad flag, configuration, or environment: the agent cannot
	// start as it is asked to.
	ExitUsage = 2
	// ExitIdentity is a match that was not reported because the Node describes
	// another machine.
	ExitIdentity = 3
	// ExitDetector is --detector=netlink where the kernel does not announce
	// processes.
	ExitDetector = 4
)

// ErrUsage is wrapped by errors of what the agent was told and given.
var ErrUsage = errors.New("cannot start")

// ExitCode returns the exit code for what [Run] returned.
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
