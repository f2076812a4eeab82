// SPDX-License-Identifier: Apache-2.0

// Package hold stops the pods of a machine that its owner needs, until the machine is deleted: it freezes their
// cgroups, and kills the ones that the configuration names. It does not know how a match is found, and does not access
// the API server.
package hold

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

const (
	// firstPassTimeout bounds how long the first pass delays the request. A write to a cgroup waits while the host
	// creates many other cgroups.
	firstPassTimeout = 50 * time.Millisecond
	// measureInterval is the interval between checks of pods that are not frozen or not gone yet.
	measureInterval = 2 * time.Millisecond
	// passInterval is the interval between passes while a hold stands: a pod that starts later runs for as long.
	passInterval = 250 * time.Millisecond
	// openInterval is the interval between attempts to open the tree for a release: an earlier agent process may have left
	// frozen pods.
	openInterval = time.Minute
	// stopPasses is the maximum number of passes of an agent that ends.
	stopPasses = 3
	// maxReason bounds a reason in the report, in bytes. In quotation marks it may be longer.
	maxReason = 200
)

// Reasons why a Node must not be held.
const (
	noTree       = "the agent has no writable cgroup tree"
	controlPlane = "the Node is part of the control plane"
)

// Options are the dependencies of a Holder. All are required except CgroupRoot.
type Options struct {
	// CgroupRoot is the path of the host's cgroup tree. Empty means that the agent has none.
	CgroupRoot string
	// ProcRoot is the path of the host's /proc.
	ProcRoot string
	Log      *slog.Logger
	Now      func() time.Time
	Metrics  *metrics.Set
	// Report sets the value of [reclaim.HoldAnnotation]. Empty removes it. It must not block.
	Report func(text string)
	// LastRead reads the Node, and calls Observe. The end of a hold waits for it.
	LastRead func(ctx context.Context)
}

// Node is what the agent has read of its Node.
type Node struct {
	// Requested means that the Node has a request, or that the controller has tainted it, because a person requested the
	// machine elsewhere.
	Requested bool
	// ControlPlane means that the Node is part of the control plane. Its pods may include the API server.
	ControlPlane bool
	// Foreign is why the Node is another machine, empty if it is not, or if Partial is set.
	Foreign string
	// Partial means that only its metadata was read, which does not identify the machine.
	Partial bool
	// Report is the value of [reclaim.HoldAnnotation].
	Report string
}

// Holder holds the pods of one machine. Its methods are safe for concurrent use. All passes are in the goroutine of
// Run.
type Holder struct {
	o      Options
	open   func() (tree, error)
	search func(procRoot string, pods []deviceSearch, found func(deviceSearch))
	wake   chan struct{}

	mu sync.Mutex
	inputs

	// The goroutine of Run owns the fields below.
	tree tree
	// unavailable is the last logged reason why no pod can be held.
	unavailable string
	// released means that no pod has a mark.
	released bool
	// paused are the pods that were released for an attempt to reach the API server before the Node was read.
	paused   []string
	active   *activeHold
	nextPass time.Time
	// logged are the kinds of failures that were logged since the hold started.
	logged map[metrics.HoldFailure]bool
	// reported is the last report, nil if there was none.
	reported *string
}

// inputs are what other goroutines set for the next step.
type inputs struct {
	facts facts
	// changed is when the last program matched, or when its request reached the Node. An earlier read is outdated.
	changed time.Time
	// annotation is the report on the Node as last read. reread means that it was read since the last step.
	annotation string
	reread     bool
	// since is the time of the match, or of the first read of a request that a person made.
	since time.Time
	// passed is closed after the next pass, nil if nothing waits for that.
	passed chan struct{}
	// results are the results of searches for devices.
	results []deviceSearch
}

// New returns a Holder. It holds nothing before Run.
func New(o Options) *Holder {
	h := &Holder{o: o, wake: make(chan struct{}, 1), search: searchDevices, logged: map[metrics.HoldFailure]bool{}}
	if o.CgroupRoot != "" {
		h.open = func() (tree, error) { return openTree(o.CgroupRoot) }
	}
	return h
}

// Configure sets the Config. A Config without patterns does not end a hold that stands: the ConfigMap is deleted with
// the Node, and without the hold its pods would run until the provider has reset the host.
func (h *Holder) Configure(c reclaim.Config) {
	h.update(func() {
		f := &h.facts
		f.loaded, f.inert = true, c.Inert()
		switch {
		case !f.inert:
			f.hold = c.Hold
			f.requested = f.requested && c.Hold.Enabled() // Without a hold the agent does not read the Node any more.
		case !f.requested && !f.matched:
			f.hold = reclaim.HoldNone
		}
	})
}

// Enabled reports whether the Config has a hold.
func (h *Holder) Enabled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.facts.hold.Enabled()
}

// Observe passes on a read of the Node that started at an instant. A read that started before the last match, or before
// its request was on the Node, changes nothing.
func (h *Holder) Observe(n Node, started time.Time) {
	h.update(func() {
		if started.Before(h.changed) {
			return
		}
		if n.Requested && !h.facts.requested && !h.facts.matched {
			h.since = h.o.Now()
		}
		h.facts.observed, h.facts.requested = true, n.Requested
		h.annotation, h.reread = n.Report, true
		switch {
		case n.ControlPlane:
			h.facts.refused = controlPlane
		case !n.Partial, h.facts.refused == controlPlane:
			h.facts.refused = n.Foreign
		}
	})
}

// Matched starts a hold for a match at an instant. It returns after the first pass over all pods, but does not delay
// the request for longer than firstPassTimeout.
func (h *Holder) Matched(ctx context.Context, at time.Time) {
	passed := make(chan struct{})
	h.update(func() {
		h.changed = h.o.Now()
		h.facts.matched, h.since, h.passed = true, at, passed
	})
	ctx, cancel := context.WithTimeout(ctx, firstPassTimeout)
	defer cancel()
	select {
	case <-passed:
	case <-ctx.Done():
	}
}

// Requested means that the request of the match is on the Node. Then the Node is this machine.
func (h *Holder) Requested() {
	h.update(func() {
		h.changed = h.o.Now()
		h.facts.matched, h.facts.requested = false, true
		if h.facts.refused != controlPlane {
			h.facts.refused = ""
		}
	})
}

// Unblock releases the pods for an attempt to deliver the request, and holds them again after it.
func (h *Holder) Unblock(on bool) { h.update(func() { h.facts.releasedForRequest = on }) }

// UnblockRead is Unblock for an attempt to read the Node.
func (h *Holder) UnblockRead(on bool) { h.update(func() { h.facts.releasedForRead = on }) }

// Refuse ends the hold, because the Node is another machine. A later read of the Node may show that it is this one.
func (h *Holder) Refuse(reason string) {
	h.update(func() { h.facts.matched, h.facts.refused = false, reason })
}

func (h *Holder) update(f func()) {
	h.mu.Lock()
	f()
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Run holds and releases pods until ctx is done. Then it releases them, unless the Node has a request.
func (h *Holder) Run(ctx context.Context) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			h.stop(context.WithoutCancel(ctx))
			return
		case <-h.wake:
		case <-due:
		}
		if next := h.step(); next > 0 {
			due = time.NewTimer(next).C
		}
	}
}

// stop releases the pods unless the Node has a request. It reads the Node once more: the manager may have cleared the
// request, and removed the agent for good. If the Node is gone, the hold stays until the provider resets the host.
func (h *Holder) stop(ctx context.Context) {
	if h.active != nil {
		h.o.LastRead(ctx)
	}
	in := h.take()
	for range stopPasses {
		if in.facts.stopped() != release || h.release(in) == 0 {
			break
		}
	}
	if h.tree != nil {
		h.tree.close()
	}
}

// take returns a copy of the inputs, and clears the ones that count for one step.
func (h *Holder) take() *inputs {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := h.inputs
	h.reread, h.passed, h.results = false, nil, nil
	return &in
}

// step decides and acts once. It returns the delay until the next step, zero for none before a change.
func (h *Holder) step() time.Duration {
	in := h.take()
	defer in.unblockMatched()
	switch v := in.facts.decide(); v {
	case release:
		return h.release(in)
	case freeze, freezeAndKill:
		return h.hold(in, v)
	default:
		h.resume()
		return 0
	}
}

// unblockMatched ends the wait of Matched.
func (in *inputs) unblockMatched() {
	if in.passed != nil {
		close(in.passed)
		in.passed = nil
	}
}

// ready opens the tree. It returns why the agent cannot hold pods.
func (h *Holder) ready() string {
	if h.tree != nil {
		return ""
	}
	if h.open == nil {
		return noTree
	}
	t, err := h.open()
	if err != nil {
		return err.Error()
	}
	h.tree = t
	return ""
}

// reportUnavailable reports that a hold is not possible.
func (h *Holder) reportUnavailable(in *inputs, why string) {
	if why != h.unavailable {
		h.unavailable = why
		h.o.Metrics.HoldFailures.Of(metrics.HoldUnavailable).Add(1)
		h.o.Log.Warn("Pods cannot be held; the machine is requested all the same", "reason", why)
	}
	h.report(in, reclaim.HoldState{Unavailable: clip.To(why, maxReason)}.Text())
}

// report sets the annotation, unless the Node has this text.
func (h *Holder) report(in *inputs, text string) {
	switch {
	case h.reported == nil && in.annotation == text:
		return
	case h.reported != nil && *h.reported == text && (!in.reread || in.annotation == text):
		return
	}
	h.reported = &text
	h.o.Report(text)
}
