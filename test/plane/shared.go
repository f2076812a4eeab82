// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// startTimeout bounds the start of a shared plane. It takes about 10 s on two
// idle cores; a busy machine may need much more.
const startTimeout = 2 * time.Minute

// Main is for TestMain: it starts one plane for all tests of a binary, hands it
// to use, runs them and stops it. The result is for os.Exit.
//
//	func TestMain(m *testing.M) {
//		os.Exit(plane.Main(m, plane.Options{}, func(p *plane.Plane) { shared = p }))
//	}
func Main(m *testing.M, o Options, use func(*Plane)) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p, err := Start(ctx, o)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Starting the local plane:", err)
		return 1
	}
	use(p)
	code := m.Run()
	if code != 0 {
		p.DumpLogs(os.Stderr, 20)
	}
	if err := p.Stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "Stopping the local plane:", err)
		return 1
	}
	return code
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
