// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A history is every phase that a ScheduledMachine has been in, also those too
// short for a look.
type history struct {
	mu     sync.Mutex
	phases []v1alpha1.Phase
}

// follow records the phases of sm, which must exist, from its creation on if it
// was created just now.
func (l *lab) follow(sm *v1alpha1.ScheduledMachine) *history {
	l.t.Helper()
	h := &history{}
	w, err := shared.Management.Client.Watch(l.t.Context(), &v1alpha1.ScheduledMachineList{}, client.InNamespace(sm.Namespace),
		client.MatchingFields{"metadata.name": sm.Name}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: sm.ResourceVersion}})
	l.must(err)
	h.add(sm.Status.Phase)
	go h.record(w)
	l.t.Cleanup(w.Stop)
	return h
}

func (h *history) record(w watch.Interface) {
	for e := range w.ResultChan() {
		if sm, ok := e.Object.(*v1alpha1.ScheduledMachine); ok {
			h.add(sm.Status.Phase)
		}
	}
}

func (h *history) add(p v1alpha1.Phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p != "" && (len(h.phases) == 0 || h.phases[len(h.phases)-1] != p) {
		h.phases = append(h.phases, p)
	}
}

// want waits until the phases are exactly these, in this order.
func (h *history) want(l *lab, phases ...v1alpha1.Phase) {
	l.t.Helper()
	l.until(func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !slices.Equal(h.phases, phases) {
			return fmt.Errorf("the phases were %v, not %v", h.phases, phases)
		}
		return nil
	})
}
