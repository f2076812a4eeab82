// SPDX-License-Identifier: Apache-2.0

// Command reclaim-agent watches the processes of a borrowed workstation. When a process of the owner matches, it
// requests the machine back: it annotates its Node.
//
//	reclaim-agent --node-name NAME [flags]
//	reclaim-agent check --config reclaim.toml [--proc-root DIR] [-o text|json]
//
// Exit codes: 0 after SIGTERM or SIGINT, after a report with --oneshot, or if check finds a match. 1 after a failure,
// or if there is nothing to report or no match. 2 for invalid flags or environment. 3 if the Node describes another
// machine. 4 with --detector=netlink if the kernel does not announce processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent"
)

// memoryLimit is the soft memory limit of the Go runtime, in bytes. The agent uses 3 MiB of heap; a burst must not
// increase that permanently.
const memoryLimit = 16 << 20

func main() {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		os.Exit(check(os.Args[2:]))
	}
	os.Exit(agent(os.Args[1:]))
}

func agent(args []string) int {
	var o reclaimagent.Options
	if code, ok := parse("reclaim-agent", args, o.AddFlags, o.Validate); !ok {
		return code
	}
	limitResources()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	log := logger(o.Verbosity).With("Node", o.NodeName)
	err := reclaimagent.Run(ctx, o, reclaimagent.Environment{Log: log, Now: time.Now, Getenv: os.Getenv})
	code := reclaimagent.ExitCode(err)
	if code != reclaimagent.ExitOK {
		log.Error("Ending", "exitCode", code, "err", err)
	}
	return code
}

func check(args []string) int {
	var o reclaimagent.CheckOptions
	if code, ok := parse("reclaim-agent check", args, o.AddFlags, o.Validate); !ok {
		return code
	}
	err := reclaimagent.Check(o, os.Stdout, logger(0), time.Now)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return reclaimagent.ExitCode(err)
}

// parse reads the flags, and then the environment. If the program must exit, it returns the exit code and false.
func parse(name string, args []string, add func(*pflag.FlagSet), validate func() error) (int, bool) {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	add(fs)
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return reclaimagent.ExitOK, false
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = reclaimagent.FromEnvironment(fs, os.Getenv)
	}
	if err == nil {
		err = validate()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return reclaimagent.ExitUsage, false
	}
	return reclaimagent.ExitOK, true
}

func logger(verbosity int) *slog.Logger {
	level := slog.LevelInfo
	if verbosity > 0 {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// limitResources limits memory and CPU use, because the machine belongs to its owner. Variables of the Go runtime in
// the environment take precedence.
func limitResources() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	}
}
