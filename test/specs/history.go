// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// A History is every phase of a ScheduledMachine, including very short ones.
type History struct {
	c      *Cluster
	mu     sync.Mutex
	phases []v1alpha1.Phase
}

// Follow records the phases of sm, which must exist. If sm was just created, it records all of them.
func (c *Cluster) Follow(sm *v1alpha1.ScheduledMachine) *History {
	c.T.Helper()
	h := &History{c: c}
	w, err := c.Management.Watch(c.T.Context(), &v1alpha1.ScheduledMachineList{}, client.InNamespace(sm.Namespace),
		client.MatchingFields{"metadata.name": sm.Name}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: sm.ResourceVersion}})
	c.must(err)
	h.add(sm.Status.Phase)
	go h.record(w)
	c.T.Cleanup(w.Stop)
	return h
}

func (h *History) record(w watch.Interface) {
	for e := range w.ResultChan() {
		if sm, ok := e.Object.(*v1alpha1.ScheduledMachine); ok {
			h.add(sm.Status.Phase)
		}
	}
}

func (h *History) add(p v1alpha1.Phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p != "" && (len(h.phases) == 0 || h.phases[len(h.phases)-1] != p) {
		h.phases = append(h.phases, p)
	}
}

// Want waits until the phases are exactly these, in this order.
func (h *History) Want(phases ...v1alpha1.Phase) {
	h.c.T.Helper()
	h.c.must(await.Until(h.c.timeout(), func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Equal(h.phases, phases) {
			return fmt.Errorf("the phases were %v, not %v", h.phases, phases)
		}
		return nil
	}))
}
