// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"errors"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
)

var errUnreadable = errors.New("the agent may not read what a pod has open")

// deviceSearch is the search of the processes of a pod for devices. owns is the result.
type deviceSearch struct {
	pod  string
	pids []int
	owns ownership
}

// searchDevices searches the processes of pods, and calls found once for each pod. It first reads all open files,
// because the read of mappings may block.
func searchDevices(procRoot string, pods []deviceSearch, found func(deviceSearch)) {
	for i := range pods {
		p := &pods[i]
		if p.owns = openDevices(procRoot, p.pids, devices); p.owns == holdsDevice {
			found(*p)
		}
	}
	for _, p := range pods {
		if p.owns != holdsDevice {
			p.owns = max(p.owns, mappedDevices(procRoot, p.pids, devices))
			found(p)
		}
	}
}

// killAll kills the pods that the Config names, each once. The caller knows that the request is on the Node.
func (h *Holder) killAll(in *inputs) {
	all := in.facts.hold == reclaim.HoldKill
	if !all {
		h.startSearch()
		h.takeResults(in.results)
	}
	for pod, p := range h.active.pods {
		if !p.killed.IsZero() || !p.gone.IsZero() || (!all && p.owns != holdsDevice) {
			continue
		}
		if err := h.tree.kill(pod); err != nil {
			h.failed(metrics.HoldKilling, err)
			continue
		}
		p.killed = h.o.Now()
	}
}

// startSearch searches the pods that were not searched before. A read may block forever, so it has its own goroutine.
func (h *Holder) startSearch() {
	var pods []deviceSearch
	for pod, p := range h.active.pods {
		if !p.searchStarted.IsZero() || !p.gone.IsZero() {
			continue
		}
		p.searchStarted = h.o.Now()
		pids, err := h.tree.processes(pod)
		if err != nil {
			h.failed(metrics.HoldSearching, err)
		}
		pods = append(pods, deviceSearch{pod: pod, pids: pids})
	}
	if len(pods) == 0 {
		return
	}
	go h.search(h.o.ProcRoot, pods, func(s deviceSearch) {
		h.update(func() { h.results = append(h.results, s) })
	})
}

func (h *Holder) takeResults(results []deviceSearch) {
	for _, s := range results {
		p := h.active.pods[s.pod]
		if p == nil {
			continue
		}
		p.owns, p.searchEnded = s.owns, true
		if s.owns == unknownDevice {
			h.failed(metrics.HoldSearching, errUnreadable)
		}
	}
}
