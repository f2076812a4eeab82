// SPDX-License-Identifier: Apache-2.0

// Package procevents answers one question: which process just ran a new
// program or took a new name? The kernel says so through its proc connector.
// The package knows nothing about patterns, and never reads /proc.
package procevents

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

var (
	// ErrUnavailable reports that the kernel does not tell this process about
	// others. The error that wraps it says what is missing.
	ErrUnavailable = errors.New("proc connector unavailable")

	// ErrOverrun reports that the kernel dropped events because they were read
	// too slowly. The Conn remains usable, but the caller must look at all
	// processes.
	ErrOverrun = errors.New("proc events lost")

	// ErrSilent reports that a heartbeat was not heard. The Conn is of no more
	// use, and the caller must look at all processes.
	ErrSilent = errors.New("proc connector fell silent")
)

const (
	// ackWait bounds the wait for the acknowledgement, which takes 25 us where
	// one comes at all.
	ackWait = 200 * time.Millisecond

	// beatEvery and beatWait bound how long a listener that the kernel has
	// forgotten goes unnoticed: 31 s, as another second may pass before it runs.
	// An event takes 25 us; a second allows for starvation.
	beatEvery = 29 * time.Second
	beatWait  = time.Second

	// stormEvents within stormSpan make a storm. Then stormPause passes between
	// reads: one wake-up serves many events, and processes that were going to
	// die at once have done so, which saves reading about them.
	stormEvents = 4
	stormSpan   = 8 * time.Millisecond
	stormPause  = 2 * time.Millisecond
	// stormLulls pauses without an event end a storm. Falling asleep and waking
	// in between costs the Go runtime some fifty wake-ups of its own.
	stormLulls = 4

	// maxBatch bounds what one Next returns, hence its memory.
	maxBatch = 512

	// datagram holds the largest message of the connector, of 76 bytes.
	datagram = 512
)

// A socket is a place where datagrams come from: a netlink socket outside tests.
type socket interface {
	// drain hands over every queued datagram until take refuses. If there is
	// none it waits until the deadline, which is os.ErrDeadlineExceeded. It
	// returns ErrOverrun after it has drained what an overrun left.
	drain(deadline time.Time, buf []byte, take func(datagram []byte) bool) error
	send(b []byte) error
	// rename gives a thread of ours the name that it has, which the kernel
	// announces like any other.
	rename() error
	pause(d time.Duration)
	close() error
}

// Options are what a Conn needs from outside.
type Options struct {
	// Now is the clock. It is required.
	Now func() time.Time
	// Unfiltered does without the socket filter. Some kernels (6.6.13-17,
	// 6.7.1-5) forget the only listener as soon as a filter drops an event,
	// which may be after the first heartbeat.
	Unfiltered bool
}

// A Conn is a subscription to process events. One goroutine may call Next at a
// time; Close may be called from any and unblocks it.
type Conn struct {
	sock socket
	now  func() time.Time
	self int

	buf   []byte
	batch []Event
	full  bool
	take  func([]byte) bool
	storm storm

	// beatAt is when to send a heartbeat or, while one is awaited, until when.
	beatAt  time.Time
	awaited bool

	closing sync.Once
	closed  error
}

// Dial subscribes to process events. It returns once the kernel has
// acknowledged and a heartbeat has come through, so that whatever runs a program
// from then on is announced; what did before is for the caller to look for.
// Errors wrap [ErrUnavailable].
func Dial(o Options) (*Conn, error) {
	c, err := dial(o)
	if errors.Is(err, ErrSilent) && !o.Unfiltered {
		o.Unfiltered = true
		c, err = dial(o)
	}
	if errors.Is(err, ErrSilent) {
		err = unavailable("a kernel that announces processes: it acknowledged, and then announced nothing", nil)
	}
	return c, err
}

func dial(o Options) (*Conn, error) {
	sock, err := open(o)
	if err != nil {
		return nil, err
	}
	c := newConn(sock, o, os.Getpid())
	if err := c.subscribe(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func newConn(sock socket, o Options, self int) *Conn {
	c := &Conn{sock: sock, now: o.Now, self: self, buf: make([]byte, datagram), batch: make([]Event, 0, maxBatch)}
	c.take = c.accept // a method value made once: making it allocates
	return c
}

// subscribe asks for events, awaits the acknowledgement of this very request -
// those of others arrive too - and then the first heartbeat.
func (c *Conn) subscribe() error {
	token := uint32(c.now().UnixNano()) //nolint:gosec // any number will do
	if err := c.sock.send(request(opListen, token)); err != nil {
		return unavailable(missing(err), err)
	}
	for deadline := c.now().Add(ackWait); ; {
		acked, err := c.acknowledged(deadline, token)
		if err != nil || acked {
			if err == nil {
				err = c.firstBeat()
			}
			return err
		}
	}
}

func (c *Conn) acknowledged(deadline time.Time, token uint32) (bool, error) {
	c.batch = c.batch[:0]
	err := c.sock.drain(deadline, c.buf, c.take)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, unavailable(whySilent(), nil)
	}
	for i := range c.batch {
		if e := &c.batch[i]; e.Kind == Ack && e.Token == token+1 {
			if e.Err != 0 {
				err := syscall.Errno(e.Err)
				return false, unavailable(missing(err), err)
			}
			return true, nil
		}
	}
	if errors.Is(err, ErrOverrun) {
		err = nil
	}
	if err == nil && !c.now().Before(deadline) {
		err = unavailable(whySilent(), nil)
	}
	return false, err
}

func (c *Conn) firstBeat() error {
	for c.beatAt = c.now(); ; {
		_, err := c.Next(c.now().Add(beatWait))
		switch {
		case errors.Is(err, ErrOverrun):
		case err != nil:
			return err
		case !c.awaited:
			return nil
		}
	}
}

// Next waits for events until the given time and returns those there are, none
// when the time has come. The slice is valid until the next call. [ErrOverrun]
// comes with the events that were not lost; [ErrSilent] and errors of the socket
// end the Conn.
func (c *Conn) Next(until time.Time) ([]Event, error) {
	coalesce := c.storm.raging() && !c.full
	c.batch, c.full = c.batch[:0], false
	if !c.now().Before(c.beatAt) {
		if c.awaited {
			return c.lastHope()
		}
		if err := c.sock.rename(); err != nil {
			return nil, fmt.Errorf("renaming a thread: %w", err)
		}
		c.awaited, c.beatAt = true, c.now().Add(beatWait)
	}
	if c.beatAt.Before(until) {
		until = c.beatAt
	}
	for lulls := 0; coalesce && lulls < stormLulls; lulls++ {
		c.sock.pause(stormPause)
		if err := c.receive(time.Time{}); err != nil || len(c.batch) > 0 {
			return c.batch, err
		}
	}
	err := c.receive(until)
	return c.batch, err
}

// lastHope looks for an overdue heartbeat among what is queued: where we were
// stopped, not the kernel was silent but we did not listen.
func (c *Conn) lastHope() ([]Event, error) {
	if err := c.receive(time.Time{}); err != nil {
		return c.batch, err
	}
	if c.awaited {
		return nil, ErrSilent
	}
	return c.batch, nil
}

// receive fills the batch.
func (c *Conn) receive(until time.Time) error {
	err := c.sock.drain(until, c.buf, c.take)
	c.listenForBeat()
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case errors.Is(err, ErrOverrun):
		// The heartbeat may be among what was lost: try again at once.
		c.awaited, c.beatAt = false, c.now()
		return ErrOverrun
	default:
		return fmt.Errorf("receiving proc events: %w", err)
	}
}

// listenForBeat takes our own renames out of the batch.
func (c *Conn) listenForBeat() {
	kept := c.batch[:0]
	for i := range c.batch {
		if e := &c.batch[i]; e.Kind == Comm && e.TGID == c.self {
			c.awaited, c.beatAt = false, c.now().Add(beatEvery)
			continue
		}
		kept = append(kept, c.batch[i])
	}
	c.batch = kept
}

// accept adds the messages of one datagram to the batch. It refuses more once
// the batch is full. A malformed message is skipped: the next one may be sound.
func (c *Conn) accept(b []byte) bool {
	for len(b) > 0 {
		e, rest, err := Parse(b)
		if err != nil {
			break
		}
		b = rest
		if e.Kind == Other || (e.Kind == Comm && e.PID != e.TGID && e.TGID != c.self) {
			continue
		}
		c.storm.add(e.Time)
		c.batch = append(c.batch, e)
	}
	c.full = len(c.batch) >= maxBatch
	return !c.full
}

// Close ends the subscription. It is idempotent.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		// Without it kernels before 6.6 keep counting us as a listener, and
		// announce every fork and exec to nobody.
		_ = c.sock.send(request(opIgnore, 0))
		c.closed = c.sock.close()
	})
	return c.closed
}

// storm recognises by the kernel's timestamps that events come thick and fast.
type storm struct {
	times [stormEvents + 1]uint64
	next  int
}

func (s *storm) add(t uint64) {
	s.times[s.next] = t
	s.next = (s.next + 1) % len(s.times)
}

// raging reports whether more than stormEvents came within stormSpan. CPUs do
// not wait for each other, so the oldest may be a little later than the newest.
func (s *storm) raging() bool {
	oldest, newest := s.times[s.next], s.times[(s.next+len(s.times)-1)%len(s.times)]
	return oldest != 0 && (newest < oldest || newest-oldest <= uint64(stormSpan))
}

// unavailable says what is missing.
func unavailable(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: it needs %s", ErrUnavailable, what)
	}
	return fmt.Errorf("%w: it needs %s: %w", ErrUnavailable, what, err)
}

// missing says what an error of the kernel asks for.
func missing(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the network namespace of the host (hostNetwork: true)"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return "the capability NET_ADMIN"
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		return "a kernel with the options CONFIG_CONNECTOR and CONFIG_PROC_EVENTS"
	default:
		return "a netlink socket of the kernel's connector"
	}
}
