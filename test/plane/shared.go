// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// startTimeout bounds the start of a shared plane. It takes about 10 s on two idle cores, and more than two minutes
// with 25 busy processes per core.
const startTimeout = 5 * time.Minute

// Stage is the environment for the tests of a binary.
type Stage interface {
	// DumpLogs writes the last lines of every log to w.
	DumpLogs(w io.Writer, lines int)
	// Stop ends all processes.
	Stop() error
}

// RunOn is for TestMain. It starts a stage within the given time, runs the tests and stops the stage. If start returns
// an error, it must have stopped everything. The result is for os.Exit.
func RunOn(start func(context.Context) (Stage, error), within time.Duration, run func() int) int {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	stage, err := start(ctx)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Starting what tests run on:", err)
		return 1
	}
	code := run()
	if code != 0 {
		stage.DumpLogs(os.Stderr, 20)
	}
	if err := stage.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Stopping what tests ran on:", err)
		return 1
	}
	return code
}

// Main is RunOn with one plane for all tests of a binary, which it passes to use.
//
//	func TestMain(m *testing.M) {
//		os.Exit(plane.Main(m, plane.Options{}, func(p *plane.Plane) { shared = p }))
//	}
func Main(m *testing.M, o Options, use func(*Plane)) int {
	return RunOn(func(ctx context.Context) (Stage, error) {
		p, err := Start(ctx, o)
		if err != nil {
			return nil, err
		}
		use(p)
		return p, nil
	}, startTimeout, m.Run)
}

// MainBare is Main with an API server that has nothing installed.
func MainBare(m *testing.M, use func(*Plane)) int {
	return Main(m, Options{Components: []Component{}}, use)
}

// Parallel is for TestMain. It runs n tests concurrently, unless the command line has -parallel. Tests that mostly wait
// need a higher number than the number of cores.
func Parallel(n int, run func() int) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", fmt.Sprint(n)); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return run()
}
