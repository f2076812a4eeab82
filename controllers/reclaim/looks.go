// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"errors"
	"sync"
	"time"
)

// mostLooks is how many looks at what others hold may be under way, of 100 workers: some
// always are free for the owner who asks next. mostLooksOfOne is how many of them may be
// at one provider's kind, or at the Nodes of one workload cluster: its outage is not felt
// by the machines of another.
const (
	mostLooks      = 75
	mostLooksOfOne = 25
)

// nextLook is when a look that found no place is tried again.
const nextLook = time.Second

// errCrowd reports that a look found no place.
var errCrowd = errors.New("too many answers are being waited for")

// looks are the looks that are under way. What is in order answers at once, so the bounds
// are met in an outage, or by a crowd. The zero value is ready for use.
type looks struct {
	mu  sync.Mutex
	all int
	at  map[string]int
}

// begin reports whether one more look may begin, errCrowd if not. Then done must be
// called after it.
func (l *looks) begin(at string) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= mostLooks || l.at[at] >= mostLooksOfOne {
		return nil, errCrowd
	}
	if l.at == nil {
		l.at = map[string]int{}
	}
	l.all++
	l.at[at]++
	return func() { l.end(at) }, nil
}

func (l *looks) end(at string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.at[at]--; l.at[at] == 0 {
		delete(l.at, at)
	}
}
