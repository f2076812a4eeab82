// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventInterval is the shortest time between two Events of one EventLimit on one Cluster.
const eventInterval = time.Minute

// An EventLimit allows one Event per minute on each Cluster. Its zero value is ready for use, and it is
// safe for concurrent use. A restart allows one more.
type EventLimit struct {
	mu   sync.Mutex
	last map[client.ObjectKey]time.Time
}

// Reached reports whether Allow would return false. It is for callers that have to count first.
func (l *EventLimit) Reached(cluster client.ObjectKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached(cluster, now)
}

func (l *EventLimit) reached(cluster client.ObjectKey, now time.Time) bool {
	at, recorded := l.last[cluster]
	return recorded && now.Sub(at).Abs() < eventInterval
}

// Allow reports whether the Event may be recorded at now. If so, it counts as recorded.
func (l *EventLimit) Allow(cluster client.ObjectKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reached(cluster, now) {
		return false
	}
	for key, at := range l.last {
		if now.Sub(at).Abs() >= eventInterval {
			delete(l.last, key)
		}
	}
	if l.last == nil {
		l.last = map[client.ObjectKey]time.Time{}
	}
	l.last[cluster] = now
	return true
}
