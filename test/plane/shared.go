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

// startTimeout bounds the start of a shared plane. It takes about 10 s on two
// idle cores, and more than two minutes with 25 busy processes per core.
const startTimeout = 5 * time.Minute

// A Stage is what the tests of a binary run on.
type Stage interface {
	// DumpLogs writes the last lines of every log to w.
	DumpLogs(w io.Writer, lines int)
	// Stop ends everything that runs.
	Stop() error
}

// RunOn is for TestMain: it starts a stage within the given time, runs the tests and
// stops it. If start returns an error, nothing of it is left. The result is for os.Exit.
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

// Main is RunOn with one plane for all tests of a binary, which it hands to use.
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

// MainBare is Main with an API server on which nothing is installed.
func MainBare(m *testing.M, use func(*Plane)) int {
	return Main(m, Options{Components: []Component{}}, use)
}

// Parallel is for TestMain: it runs the tests with n of them at a time, unless the
// command line says otherwise. Tests that wait for others need more than there are
// cores.
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
