// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports come in blocks below the range for outgoing connections in Linux (32768 and up). A process reserves a block by
// a listener on its first port, and releases it when it ends. So two planes, in one process or in two, never use the
// same port.
const (
	firstBlock = 10240
	blockSize  = 64
	blocks     = 340
)

// portBlock is a range of ports that this process has reserved.
type portBlock struct {
	lock net.Listener
	next int
	end  int
}

// ports returns free ports from blocks that it reserves on demand.
type ports struct {
	mu     sync.Mutex
	blocks []*portBlock
}

// Ports returns n free ports for programs that need no plane. They are reserved until release is called.
func Ports(n int) (free []int, release func(), err error) {
	p := &ports{}
	if free, err = p.takeMany(n); err != nil {
		p.release()
		return nil, nil, err
	}
	return free, p.release, nil
}

func claimBlock() (*portBlock, error) {
	for _, i := range rand.Perm(blocks) { //nolint:gosec // nothing to guess
		first := firstBlock + i*blockSize
		l, err := listen(first)
		if err == nil {
			return &portBlock{lock: l, next: first + 1, end: first + blockSize}, nil
		}
	}
	return nil, errors.New("no block of ports is free")
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port))) //nolint:noctx // servers of the plane listen on all addresses, so the test does
}

// take returns a port without a listener.
func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if n := len(p.blocks); n > 0 {
			if port, ok := p.blocks[n-1].take(); ok {
				return port, nil
			}
		}
		b, err := claimBlock()
		if err != nil {
			return 0, err
		}
		p.blocks = append(p.blocks, b)
	}
}

// takeMany returns n ports.
func (p *ports) takeMany(n int) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		var err error
		if out[i], err = p.take(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// takeRange reserves a whole block for a server that selects ports by itself.
func (p *ports) takeRange() (first, last int, err error) {
	b, err := claimBlock()
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// take uses only the last block, so this one must not be last.
	p.blocks = append([]*portBlock{b}, p.blocks...)
	first, last, b.next = b.next, b.end-1, b.end
	return first, last, nil
}

func (b *portBlock) take() (int, bool) {
	for b.next < b.end {
		port := b.next
		b.next++
		l, err := listen(port)
		if err != nil {
			continue // another program's server, from outside the blocks
		}
		_ = l.Close()
		return port, true
	}
	return 0, false
}

// release releases all ports.
func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.blocks {
		_ = b.lock.Close()
	}
	p.blocks = nil
}

func hostPort(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
