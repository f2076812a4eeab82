// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"errors"
	"sync"
	"time"
)

// maxConcurrentCalls bounds the concurrent calls to providers and workload clusters. It is below the 100 workers, so
// that some stay free for new requests. maxCallsPerTarget bounds the calls to one provider kind, or to the Nodes of one
// workload cluster. An outage there then does not block other machines. maxCallsAfterFailure bounds one kind of call at
// one target after its latest call failed. Without a failure, many owners at once are not limited to it.
const (
	maxConcurrentCalls   = 90
	maxCallsPerTarget    = 75
	maxCallsAfterFailure = 10
)

// callRetryDelay is the delay before a retry after errCallLimit.
const callRetryDelay = time.Second

// errCallLimit means that the limit of concurrent calls is reached.
var errCallLimit = errors.New("too many requests are waiting for an answer")

// callLimiter limits and counts concurrent calls. The zero value is ready for use. It is safe for concurrent use.
type callLimiter struct {
	mu  sync.Mutex
	all int
	// byTarget counts the calls per target: a provider kind, or the Nodes of one workload cluster. at has the calls of
	// each callKey.
	byTarget map[string]int
	at       map[callKey]progress
}

// callKey is a kind of call and its target.
type callKey struct{ kind, target string }

// progress has the number of running calls, and whether the latest finished call failed.
type progress struct {
	n      int
	failed bool
}

// begin admits one more call, or returns errCallLimit. After an admitted call, the caller must call done with its
// error.
func (l *callLimiter) begin(at callKey) (done func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.at[at]
	if l.all >= maxConcurrentCalls || l.byTarget[at.target] >= maxCallsPerTarget || now.failed && now.n >= maxCallsAfterFailure {
		return nil, errCallLimit
	}
	if l.at == nil {
		l.byTarget, l.at = map[string]int{}, map[callKey]progress{}
	}
	l.all++
	l.byTarget[at.target]++
	now.n++
	l.at[at] = now
	return func(err error) { l.end(at, err) }, nil
}

func (l *callLimiter) end(at callKey, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byTarget[at.target]--; l.byTarget[at.target] == 0 {
		delete(l.byTarget, at.target)
	}
	now := progress{n: l.at[at].n - 1, failed: err != nil}
	if l.at[at] = now; now == (progress{}) {
		delete(l.at, at)
	}
}
