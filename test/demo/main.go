// SPDX-License-Identifier: Apache-2.0

// Command demo shows 5-Spot on this machine. A machine joins a cluster when its window opens, its owner starts a
// program, its pods stop, and the machine leaves. It needs no root, no Docker and no network.
//
//	make demo
//
// All parts are real: etcd, API servers, Cluster API, 5-Spot's manager, and its agent, which watches the processes of
// this machine. The Node is real if this machine supports it, as root and with runc, and simulated otherwise. Pods
// run only on a real Node. With cgroup v2, the demo shows how spec.reclaimHold stops a busy one. The demo ends and
// cleans up at Ctrl-C; with --exit it ends after the last step. It exits with 1 if a step fails or takes too long.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// patience bounds one step. It is long, because a busy machine is slow.
const patience = 2 * time.Minute

// logLines is how many lines of every log are shown when a step fails.
const logLines = 15

type options struct {
	bin, detector, node string
	exit                bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", system.DefaultBin(), "Directory with manager, reclaim-agent and kubectl-5spot,\nfrom `make build`.")
	flag.StringVar(&o.detector, "detector", "auto", "How the agent finds processes: `auto`, netlink or poll.\nauto listens to the kernel where that is possible, and polls elsewhere.")
	flag.StringVar(&o.node, "node", anyNode, "What the Node is: `auto`, real or simulated.\nauto is real as root where runc is installed and the container runtime is built.")
	flag.BoolVar(&o.exit, "exit", false, "End when the story is told, instead of waiting for Ctrl-C.")
	flag.Usage = usage
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func usage() {
	out := flag.CommandLine.Output()
	_, _ = fmt.Fprint(out, `Shows 5-Spot at work on this machine: a machine joins a cluster when its window
opens, its owner starts a program, its pods stop, and the machine goes. Afterwards
the clusters stay up, to be explored, until Ctrl-C.

Run it with `+"`make demo`"+`, which builds what it needs; PLANE_BIN moves the programs
of the local plane elsewhere.

Flags:
`)
	flag.PrintDefaults()
}

// run runs the demo and cleans up.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	if err := complete(o.bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "5spot-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &story{timeline: newTimeline(out), options: o, dir: dir}
	start, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s.say("Starting etcd, an API server, Cluster API and 5-Spot in %s", dir)
	s.System, err = system.Start(start, system.Options{
		Bin: o.bin, Plane: plane.Options{Dir: dir}, ManagerArgs: o.managerArgs(),
	})
	if err != nil {
		return err
	}
	defer func() {
		s.say("Stopping everything and removing %s", dir)
		err = errors.Join(err, s.Stop())
	}()
	if err := s.run(ctx); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return errors.New("interrupted")
		}
		s.DumpLogs(os.Stderr, logLines)
		return err
	}
	if !o.exit {
		s.explore(ctx)
	}
	return nil
}

// complete returns an error if programs are missing, with the command that builds them.
func complete(bin string) error {
	for _, name := range []string{"manager", "reclaim-agent", "kubectl-5spot"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("%s is not in %s: run `make build`, or `make demo`, which does: %w", name, bin, err)
		}
	}
	for _, name := range []string{"kube-apiserver", "capi-core", "plane-infrastructure", "pause"} {
		if _, err := os.Stat(filepath.Join(plane.DefaultBin(), name)); err != nil {
			return fmt.Errorf("%s is not in %s: run `make plane-binaries`, or `make demo`, which does: %w", name, plane.DefaultBin(), err)
		}
	}
	return nil
}
