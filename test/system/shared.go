// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"fmt"
	"os"
	"time"
)

// startTimeout bounds the start of everything; a busy machine takes a while.
const startTimeout = 4 * time.Minute

// Main is for TestMain: it starts a system, hands it to use, runs the tests and stops
// the system. It returns the exit status.
func Main(o Options, use func(context.Context, *System) error, run func() int) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		return complain("Starting 5-Spot:", err)
	}
	code := 1
	if err := use(ctx, s); err != nil {
		complain("Preparing 5-Spot:", err)
	} else if code = run(); code != 0 {
		s.DumpLogs(os.Stderr, 20)
	}
	if err := s.Stop(); err != nil {
		return complain("Stopping 5-Spot:", err)
	}
	return code
}

func complain(doing string, err error) int {
	_, _ = fmt.Fprintln(os.Stderr, doing, err)
	return 1
}
