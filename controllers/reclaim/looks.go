// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"errors"
	"sync"
	"time"
)

// mostLooks bounds the concurrent calls to providers and workload clusters. There are 100 workers, so that some stay
// free for new requests. mostLooksOfOne bounds the calls to one provider kind, or to the Nodes of one workload cluster.
// An outage there then does not block other machines. fewest bounds one kind of call at one target after its latest
// call failed. Without a failure, many owners at once are not limited to it.
const (
	mostLooks      = 90
	mostLooksOfOne = 75
	fewest         = 10
)

// nextLook is the delay before a retry after errCrowd.
const nextLook = time.Second

// errCrowd means that the limit of concurrent calls is reached.
var errCrowd = errors.New("too many requests are waiting for an answer")

// looks limits and counts concurrent calls. The zero value is ready for use. It is safe for concurrent use.
type looks struct {
	mu  sync.Mutex
	all int
	// whose counts the calls per target: a provider kind, or the Nodes of one workload cluster.
	whose map[string]int
	at    map[look]progress
}

// look is a kind of call (what) and its target (whose).
type look struct{ what, whose string }

// progress has the number of running calls, and whether the latest finished call failed.
type progress struct {
	n      int
	failed bool
}

// begin admits one more call, or returns errCrowd. After an admitted call, the caller must call done with its error.
func (l *looks) begin(at look) (done func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.at[at]
	if l.all >= mostLooks || l.whose[at.whose] >= mostLooksOfOne || now.failed && now.n >= fewest {
		return nil, errCrowd
	}
	if l.at == nil {
		l.whose, l.at = map[string]int{}, map[look]progress{}
	}
	l.all++
	l.whose[at.whose]++
	now.n++
	l.at[at] = now
	return func(err error) { l.end(at, err) }, nil
}

func (l *looks) end(at look, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.whose[at.whose]--; l.whose[at.whose] == 0 {
		delete(l.whose, at.whose)
	}
	now := progress{n: l.at[at].n - 1, failed: err != nil}
	if l.at[at] = now; now == (progress{}) {
		delete(l.at, at)
	}
}
