// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command listener detects processes as the reclaim agent does, or in a naive way. It prints for each the PID, the
// nanosecond of CLOCK_MONOTONIC, and how many nanoseconds ago the kernel announced it. The pattern is in the
// environment variable PATTERN, because arguments are matched.
//
//	listener auto|netlink|poll|naive-netlink|naive-poll
//
// It prints "ready" once it listens. On SIGUSR1 it prints "counts": allocations, programs that the kernel announced,
// polls, and nanoseconds between polls.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
	"golang.org/x/sys/unix"
)

const (
	// interval is the agent's default between polls.
	interval = 250 * time.Millisecond
	// readyEvery is how often it checks whether it listens.
	readyEvery = 5 * time.Millisecond
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "listener:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(mode string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	counts := &metrics.Set{}
	go report(counts)
	n := naive{counts: counts}
	n.commands, n.substrings = patterns(os.Getenv("PATTERN")) //nolint:forbidigo // see above
	switch mode {
	case "naive-netlink":
		return n.listen(ctx)
	case "naive-poll":
		return n.poll(ctx)
	}
	m, err := detect.ParseMode(mode)
	if err != nil {
		return err
	}
	// As cmd/reclaim-agent does.
	debug.SetMemoryLimit(16 << 20)
	debug.SetGCPercent(50)
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	d := detect.New(detect.Options{
		Mode: m, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, Metrics: counts, //nolint:forbidigo // this is main
		Open: func() (*process.Table, error) { return process.Open("/proc") },
	})
	return d.Run(ctx, match.New(n.commands, n.substrings), interval, func(m detect.Match) { found(m.PID, m.Latency) })
}

// patterns returns ten names and ten substrings, of which the last matches.
func patterns(last string) (commands, substrings []string) {
	for i := range 10 {
		commands = append(commands, fmt.Sprintf("no-such-name-%d", i))
		substrings = append(substrings, fmt.Sprintf("no-such-argument-%d", i))
	}
	substrings[9] = last
	return commands, substrings
}

// matches is the naive way.
func matches(comm, argv string, commands, substrings []string) bool {
	for _, c := range commands {
		if strings.TrimSuffix(comm, "\n") == c {
			return true
		}
	}
	argv = strings.ReplaceAll(argv, "\x00", " ")
	for _, s := range substrings {
		if strings.Contains(argv, s) {
			return true
		}
	}
	return false
}

func found(pid int, latency time.Duration) {
	fmt.Println(pid, now(), int64(latency)) //nolint:forbidigo // this is what it is for
}

func now() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// report prints "ready" when it listens, and the counts on each SIGUSR1.
func report(counts *metrics.Set) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	ticker := time.NewTicker(readyEvery)
	for counts.Detector() == "" {
		<-ticker.C
	}
	ticker.Stop()
	fmt.Println("ready", counts.Detector()) //nolint:forbidigo // this is what it is for
	for range asked {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println("counts", m.Mallocs, counts.Execs.Load(), counts.Polls.Load(), counts.PollInterval.Load()) //nolint:forbidigo // as above
	}
}
