// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"errors"
	"sync"
	"time"
)

// mostLooks is how many calls to what others have in hand may be under way, of 100
// workers: some always are free for the owner who asks next. mostLooksOfOne is how many
// of them may be at one provider's kind, or at the Nodes of one workload cluster, and
// fewest how many may do what failed there last: an outage is not felt by the machines of
// another, and a crowd of owners is no outage.
const (
	mostLooks      = 90
	mostLooksOfOne = 75
	fewest         = 10
)

// nextLook is when a look that found no place is tried again.
const nextLook = time.Second

// errCrowd reports that a look found no place.
var errCrowd = errors.New("too many requests are waiting for an answer")

// looks are the calls that are under way. The zero value is ready for use.
type looks struct {
	mu  sync.Mutex
	all int
	// whose is how many are at one provider's kind, or at the Nodes of one workload cluster.
	whose map[string]int
	at    map[look]progress
}

// look is what is done, and at whose.
type look struct{ what, whose string }

// progress is what is known of the calls that do the same.
type progress struct {
	n      int
	failed bool
}

// begin reports whether one more call may begin, errCrowd if not. Then done must be called
// with its error.
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
