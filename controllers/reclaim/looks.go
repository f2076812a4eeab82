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
// fewest how many while the last of them failed: an outage is not felt by the machines of
// another, and a crowd of owners is no outage.
const (
	mostLooks      = 90
	mostLooksOfOne = 75
	fewest         = 10
)

// nextLook is when a look that found no place is tried again.
const nextLook = time.Second

// errCrowd reports that a look found no place.
var errCrowd = errors.New("too many answers are being waited for")

// looks are the calls that are under way. The zero value is ready for use.
type looks struct {
	mu  sync.Mutex
	all int
	at  map[string]look
}

// look is what is known of one provider's kind, or of one workload cluster.
type look struct {
	n      int
	failed bool
}

// begin reports whether one more call may begin, errCrowd if not. Then done must be called
// with its error.
func (l *looks) begin(at string) (done func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, most := l.at[at], mostLooksOfOne
	if now.failed {
		most = fewest
	}
	if l.all >= mostLooks || now.n >= most {
		return nil, errCrowd
	}
	if l.at == nil {
		l.at = map[string]look{}
	}
	l.all++
	now.n++
	l.at[at] = now
	return func(err error) { l.end(at, err) }, nil
}

func (l *looks) end(at string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	now := look{n: l.at[at].n - 1, failed: err != nil}
	if l.at[at] = now; now == (look{}) {
		delete(l.at, at)
	}
}
