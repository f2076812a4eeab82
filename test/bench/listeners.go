// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patienceReady bounds the start of a listener.
const patienceReady = 10 * time.Second

// A peer is a program of the distribution, or the reason why it is missing.
type peer struct {
	path    string
	missing error
}

// fetchPeers uses installed peers, or else unpacks their packages into a temporary directory.
func (a *agentBench) fetchPeers(ctx context.Context) {
	a.forkstat, a.extrace = a.fetch(ctx, "forkstat"), a.fetch(ctx, "extrace")
}

func (a *agentBench) fetch(ctx context.Context, name string) peer {
	if path, err := exec.LookPath(name); err == nil {
		return peer{path: path}
	}
	dir := filepath.Join(a.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return peer{missing: err}
	}
	const script = `apt-get download "$1" && dpkg -x "$1"_*.deb .`
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", name) //nolint:gosec // names of ours
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return peer{missing: unmeasured("%s is not installed, and cannot be downloaded: %s", name, lines[len(lines)-1])}
	}
	found, err := filepath.Glob(filepath.Join(dir, "usr", "*bin", name))
	if err != nil || len(found) == 0 {
		return peer{missing: unmeasured("package %s has no program %s", name, name)}
	}
	return peer{path: found[0]}
}

// start starts a peer. Peers do not report when they are ready.
func (p peer) start(ctx context.Context, args ...string) (*child, error) {
	if p.missing != nil {
		return nil, p.missing
	}
	return mute(ctx, p.path, args...)
}

// listen starts one of our listeners, and waits until it is ready.
func (a *agentBench) listen(ctx context.Context, mode string) (*child, error) {
	c, err := a.listenIn(ctx, mode, 0)
	if err != nil {
		return nil, err
	}
	if _, err := c.await("ready", patienceReady); err != nil {
		c.stop()
		return nil, unmeasured("%v", err)
	}
	return c, nil
}

func (a *agentBench) listenIn(ctx context.Context, mode string, namespaces uintptr) (*child, error) {
	return startChild(ctx, a.listener, []string{mode}, []string{"PATTERN=" + a.pattern}, namespaces)
}

// counts are the counts that our listeners report.
type counts struct {
	mallocs, execs, polls int
	// interval is the time between polls.
	interval time.Duration
}

func (c counts) minus(d counts) counts {
	return counts{mallocs: c.mallocs - d.mallocs, execs: c.execs - d.execs, polls: c.polls - d.polls, interval: c.interval}
}

// counted requests the counts of one of our listeners.
func counted(c *child) (counts, error) {
	before := len(c.all())
	c.signal(syscall.SIGUSR1)
	l, err := c.awaitFrom(before, "counts", patienceReady)
	if err != nil {
		return counts{}, err
	}
	var n counts
	if !scan(l.text, "counts %d %d %d %d", &n.mallocs, &n.execs, &n.polls, &n.interval) {
		return n, fmt.Errorf("counts are unreadable: %q", l.text)
	}
	return n, nil
}

// A sighting is a process that a listener found: when, and how long after the kernel announced it.
type sighting struct {
	pid         int
	at, latency time.Duration
}

func sightings(c *child) []sighting {
	var out []sighting
	for _, l := range c.all() {
		var s sighting
		if scan(l.text, "%d %d %d", &s.pid, &s.at, &s.latency) {
			out = append(out, s)
		}
	}
	return out
}

// found joins targets with their sightings: the times from the start to the decision, from the kernel's event to the
// decision, and the number of lost targets.
type found struct {
	call, event []time.Duration
	lost        int
}

// join takes for each start the first sighting of its PID within patience, because PIDs are reused.
func join(starts []start, seen []sighting, patience time.Duration) found {
	byPID := map[int][]sighting{}
	for _, s := range seen {
		byPID[s.pid] = append(byPID[s.pid], s)
	}
	var f found
	for _, t := range starts {
		s, ok := firstWithin(byPID[t.pid], t.at, patience)
		if !ok {
			f.lost++
			continue
		}
		f.call, f.event = append(f.call, s.at-t.at), append(f.event, s.latency)
	}
	return f
}

func firstWithin(seen []sighting, at, patience time.Duration) (sighting, bool) {
	for _, s := range seen {
		if s.at >= at && s.at-at <= patience {
			return s, true
		}
	}
	return sighting{}, false
}

// losses is a figure with the goal of no lost target.
func (f found) losses(what string) figure {
	return one(what+": lost of those that live 10 ms", "targets", f.lost+len(f.call), float64(f.lost)).goal("0", f.lost == 0)
}
