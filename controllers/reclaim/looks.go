// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostLooks is how many looks at what providers hold may be under way, of 100 workers:
// some always are free for the owner who asks next. mostLooksOfOne is how many of them
// may be at one provider's kind: its outage is not felt by the machines of another.
const (
	mostLooks      = 75
	mostLooksOfOne = 25
)

// looks are the looks that are under way. A look at a cache that is in order is over at
// once, so the bounds are met only in an outage. The zero value is ready for use.
type looks struct {
	mu    sync.Mutex
	all   int
	kinds map[schema.GroupKind]int
}

// begin reports whether one more look may begin. Then done must be called after it.
func (l *looks) begin(kind schema.GroupKind) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= mostLooks || l.kinds[kind] >= mostLooksOfOne {
		return nil, fmt.Errorf("objects of kind %s are not read: too many reads are being waited for", kind)
	}
	if l.kinds == nil {
		l.kinds = map[schema.GroupKind]int{}
	}
	l.all++
	l.kinds[kind]++
	return func() { l.end(kind) }, nil
}

func (l *looks) end(kind schema.GroupKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.kinds[kind]--; l.kinds[kind] == 0 {
		delete(l.kinds, kind)
	}
}
