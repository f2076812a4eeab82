// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
)

// busyPods is the number of pods that use the CPU.
const busyPods = 8

// A holdBench measures what the owner of a machine has of it beside busy pods, with and without a hold.
type holdBench struct {
	*bench
	pods           *podTree
	agent, owner   string
	spinner, ident string
	// mark is an argument of the owner's program.
	mark string
}

func benchHold(ctx context.Context, b *bench) (err error) {
	h := &holdBench{bench: b, mark: fmt.Sprintf("owner-%08x", b.random().Uint32())}
	err = h.prepare(ctx)
	if h.pods != nil {
		defer func() { err = errors.Join(err, h.pods.remove()) }()
	}
	if err == nil {
		err = h.askSpeed(ctx)
	}
	if err == nil {
		err = h.askMemory(ctx)
	}
	if errors.Is(err, errUnmeasured) {
		b.add(missing("hold", err))
		return nil
	}
	return err
}

func (h *holdBench) prepare(ctx context.Context) error {
	h.agent = filepath.Join(h.bin, "reclaim-agent")
	if _, err := os.Stat(h.agent); err != nil {
		return unmeasured("run `make build`: %v", err)
	}
	c, err := tiny()
	if err != nil {
		return unmeasured("%v", err)
	}
	if h.owner, err = h.build(ctx, "./bench/owner", "owner"); err != nil {
		return err
	}
	h.spinner, h.ident = filepath.Join(h.dir, "busy"), filepath.Join(h.dir, "machine-id")
	if err := errors.Join(c.writeTiny(h.spinner, c.spin), os.WriteFile(h.ident, []byte(machineID), 0o600)); err != nil {
		return err
	}
	h.pods, err = newPodTree()
	return err
}

// situation is one agent on a machine with pods.
type situation struct {
	what string
	hold reclaim.Hold
	// away means that the API server does not answer when the owner comes back.
	away bool
}

// askSpeed measures how much CPU time the owner's program loses to busy pods in its first second.
func (h *holdBench) askSpeed(ctx context.Context) error {
	alone := make([]float64, h.runs)
	for i := range alone {
		var err error
		if alone[i], err = h.work(ctx); err != nil {
			return err
		}
	}
	baseline := spreadOf("owner's program alone: share of a core", "share", alone)
	h.add(baseline)
	for i := range busyPods {
		cmd, err := h.pods.start(ctx, fmt.Sprintf("pod%d", i), nil, h.spinner)
		if err != nil {
			return err
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	without, _, err := h.loss(ctx, situation{"no hold", reclaim.HoldNone, false}, baseline)
	if err != nil {
		return err
	}
	h.add(without)
	for _, s := range []situation{{"hold", reclaim.HoldFreezeOnly, false}, {"hold, no API server", reclaim.HoldFreezeOnly, true}} {
		f, frozen, err := h.loss(ctx, s, baseline)
		if err != nil {
			return err
		}
		h.add(f.against("no hold", without).goal("p99 ≤ 5", f.P99 <= 5))
		h.add(frozen)
	}
	return nil
}

// loss measures the loss in a situation, and the time from the match to the last freeze.
func (h *holdBench) loss(ctx context.Context, s situation, alone figure) (lost, frozen figure, err error) {
	percent, took := make([]float64, h.runs), make([]time.Duration, h.runs)
	for i := range h.runs {
		share, froze, err := h.meet(ctx, s)
		if err != nil {
			return lost, frozen, fmt.Errorf("%s: %w", s.what, err)
		}
		percent[i], took[i] = 100*(1-share/alone.P50), froze
	}
	what := fmt.Sprintf("owner's program beside %d busy pods, %s: CPU time lost from 10 ms after exec", busyPods, s.what)
	return spreadOf(what, "%", percent), spread(s.what+": match → last pod frozen", took), nil
}

// work runs the owner's program, and returns its share of a core.
func (h *holdBench) work(ctx context.Context) (share float64, err error) {
	cmd := exec.CommandContext(ctx, h.owner, "cpu", strconv.FormatInt(int64(monotonic()), 10), h.mark) //nolint:gosec // a program of ours
	out, err := cmd.Output()
	if err == nil && !scan(string(out), "share %g\n", &share) {
		err = fmt.Errorf("the owner's program printed %q", out)
	}
	return share, err
}

// meet runs the owner's program on a machine with an agent. It returns the share, and how long the freeze took.
func (h *holdBench) meet(ctx context.Context, s situation) (share float64, froze time.Duration, err error) {
	a, server, err := h.arm(ctx, s.hold)
	if err != nil {
		return 0, 0, err
	}
	defer server.Close()
	defer server.CloseClientConnections()
	defer a.stop()
	if s.away {
		server.away.Store(true)
		server.CloseClientConnections()
	}
	share, err = h.work(ctx)
	if err != nil || !s.hold.Enabled() {
		return share, 0, err
	}
	held, err := a.await("Froze pods", patienceReady)
	if err != nil {
		return 0, 0, err
	}
	froze, err = tookOf(held.text)
	return share, froze, err
}

var tookText = regexp.MustCompile(` took=(\S+)`)

// tookOf returns the duration in a line of the agent's log.
func tookOf(line string) (time.Duration, error) {
	m := tookText.FindStringSubmatch(line)
	if m == nil {
		return 0, fmt.Errorf("no duration in %q", line)
	}
	return time.ParseDuration(m[1])
}

// arm starts an agent in a pod of its own, and waits until it watches and all pods run.
func (h *holdBench) arm(ctx context.Context, hold reclaim.Hold) (*child, *nodeServer, error) {
	config := reclaim.Config{MatchArgvSubstrings: []string{h.mark}, Hold: hold}
	server := newNodeServer(config.Text())
	kubeconfig, err := server.kubeconfig(h.dir)
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	a, err := captured(func(out *os.File) (*exec.Cmd, error) {
		return h.pods.start(ctx, "podagent", out, h.agent, "--kubeconfig="+kubeconfig, "--machine-id-path="+h.ident,
			"--node-name="+nodeName, "--cgroup-root="+h.pods.root)
	})
	if err == nil {
		_, err = a.await("Watching processes", patienceReady)
	}
	if err == nil {
		err = pause(ctx, settleFor) // a new agent first releases what the last one held
	}
	return a, server, err
}

// askMemory measures how long the memory of killed pods stays in use after the request is on the Node. Its peer is a
// plain SIGKILL: the kernel needs that long to free the memory.
func (h *holdBench) askMemory(ctx context.Context) error {
	const most = 10
	runs := min(h.runs, most)
	plain, back := make([]time.Duration, runs), make([]time.Duration, runs)
	for i := range runs {
		var err error
		if plain[i], err = h.fill(ctx, fmt.Sprintf("podkilled%d", i), h.kill); err != nil {
			return err
		}
		if back[i], err = h.fill(ctx, fmt.Sprintf("podmemory%d", i), h.giveBack); err != nil {
			return err
		}
	}
	limit := spread(fmt.Sprintf("SIGKILL → %d MiB back", h.memory), plain)
	h.add(limit)
	f := spread(fmt.Sprintf("Kill: request on the Node → %d MiB back", h.memory), back)
	h.add(f.against("SIGKILL", limit).goal("≤ 250", f.Max <= 250))
	return nil
}

// fill runs a pod with memory, and returns how long free takes.
func (h *holdBench) fill(ctx context.Context, pod string, free func(context.Context, string, *child) (time.Duration, error)) (time.Duration, error) {
	c, err := captured(func(out *os.File) (*exec.Cmd, error) {
		return h.pods.start(ctx, pod, out, h.owner, "memory", strconv.Itoa(h.memory))
	})
	if err != nil {
		return 0, err
	}
	defer c.stop()
	if _, err := c.await("ready", patience); err != nil {
		return 0, err
	}
	return free(ctx, pod, c)
}

// kill kills the pod's only process, and returns the time until the pod is gone.
func (h *holdBench) kill(ctx context.Context, pod string, c *child) (time.Duration, error) {
	at := clk.Now()
	c.signal(syscall.SIGKILL)
	return h.sinceGone(ctx, pod, at)
}

func (h *holdBench) sinceGone(ctx context.Context, pod string, at time.Time) (time.Duration, error) {
	for !h.pods.gone(pod) {
		if err := pause(ctx, time.Millisecond); err != nil {
			return 0, err
		}
	}
	return clk.Since(at), nil
}

// giveBack runs the owner's program. It returns the time from the request to the end of the pod.
func (h *holdBench) giveBack(ctx context.Context, pod string, _ *child) (time.Duration, error) {
	a, server, err := h.arm(ctx, reclaim.HoldKill)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	defer server.CloseClientConnections()
	defer a.stop()
	owner := make(chan error, 1)
	go func() { _, err := h.work(ctx); owner <- err }()
	select {
	case at := <-server.requested:
		took, err := h.sinceGone(ctx, pod, at)
		return took, errors.Join(err, <-owner)
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(patienceReady): //nolint:forbidigo // no event marks the end
		return 0, fmt.Errorf("no request: %s", a.tail())
	}
}
