// SPDX-License-Identifier: Apache-2.0

// Package procevents receives events from the kernel's proc connector: which process runs a new program, or has a new
// name. It does not know the patterns, and never reads the processes in /proc.
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
	// ErrUnavailable means that the kernel does not announce processes to this one. The error that wraps it names the
	// missing requirement.
	ErrUnavailable = errors.New("proc connector unavailable")

	// ErrOverrun means that the kernel dropped events because they were read too slowly. The Conn remains usable, but
	// the caller must scan all processes.
	ErrOverrun = errors.New("proc events lost")

	// ErrSilent means that a heartbeat was missed. The Conn is not usable any more, and the caller must scan all
	// processes.
	ErrSilent = errors.New("proc connector fell silent")
)

const (
	// ackTimeout is the timeout of the acknowledgement. Normally, it takes 25 us.
	ackTimeout = 200 * time.Millisecond

	// heartbeatInterval and heartbeatTimeout bound how long a lost subscription stays unnoticed: 31 s, because another
	// second may pass before the process runs. An event takes 25 us; a second allows for CPU starvation.
	heartbeatInterval = 29 * time.Second
	heartbeatTimeout  = time.Second

	// A storm is more than stormEvents events within stormSpan. In a storm, Next pauses for stormPause between reads.
	// One wake-up then handles many events, and processes that live briefly have ended, which saves reads.
	stormEvents = 4
	stormSpan   = 8 * time.Millisecond
	stormPause  = 2 * time.Millisecond
	// stormEndPauses pauses without an event end a storm. A sleep and a wake-up in between would cost the Go runtime
	// about fifty wake-ups.
	stormEndPauses = 4

	// maxBatch bounds the events that one Next returns, and so its memory.
	maxBatch = 512

	// datagram is the buffer size. The largest message of the connector has 76 bytes.
	datagram = 512
)

// socket is a source of datagrams: a netlink socket, except in tests.
type socket interface {
	// drain passes every queued datagram to take until take returns false. If there is none, it waits until the
	// deadline and returns os.ErrDeadlineExceeded. After an overrun it drains the remaining datagrams and returns
	// ErrOverrun.
	drain(deadline time.Time, buf []byte, take func(datagram []byte) bool) error
	send(b []byte) error
	// rename sets the name of a thread of this process to its current name. The kernel announces it like any rename.
	rename() error
	pause(d time.Duration)
	close() error
}

// Options are the dependencies of a Conn.
type Options struct {
	// Now is the clock. It is required.
	Now func() time.Time
	// Unfiltered disables the socket filter. Some kernels (6.6.13-17, 6.7.1-5) drop the only listener as soon as a
	// filter drops an event, which may be after the first heartbeat.
	Unfiltered bool
}

// Conn is a subscription to process events. Only one goroutine may call Next at a time. Close may be called from any
// goroutine and unblocks Next.
type Conn struct {
	sock socket
	now  func() time.Time
	self int

	buf   []byte
	batch []Event
	full  bool
	take  func([]byte) bool
	storm storm

	// heartbeatAt is when the next heartbeat is sent. While one is awaited, it is the deadline.
	heartbeatAt      time.Time
	heartbeatPending bool

	closing sync.Once
	closed  error
}

// Dial subscribes to process events. It returns after the kernel's acknowledgement and the first heartbeat. The kernel
// announces every program that starts after that; the caller must scan for earlier ones. Errors wrap [ErrUnavailable].
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
	c.take = c.accept // stored, because a method value allocates
	return c
}

// subscribe requests events, awaits the acknowledgement of this request, and then the first heartbeat. Acknowledgements
// of other listeners arrive as well.
func (c *Conn) subscribe() error {
	token := uint32(c.now().UnixNano()) //nolint:gosec // any number will do
	if err := c.sock.send(request(opListen, token)); err != nil {
		return unavailable(missing(err), err)
	}
	deadline := c.now().Add(ackTimeout)
	for acked := false; !acked; {
		var err error
		if acked, err = c.acknowledged(deadline, token); err != nil {
			return err
		}
	}
	return c.firstHeartbeat()
}

func (c *Conn) acknowledged(deadline time.Time, token uint32) (bool, error) {
	c.batch = c.batch[:0]
	err := c.sock.drain(deadline, c.buf, c.take)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, unavailable(silenceReason(), nil)
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
		err = unavailable(silenceReason(), nil)
	}
	return false, err
}

func (c *Conn) firstHeartbeat() error {
	for c.heartbeatAt = c.now(); ; {
		_, err := c.Next(c.now().Add(heartbeatTimeout))
		switch {
		case errors.Is(err, ErrOverrun):
		case err != nil:
			return err
		case !c.heartbeatPending:
			return nil
		}
	}
}

// Next waits for events until the given time. It returns the available events, or none after that time. The slice is
// valid until the next call. [ErrOverrun] comes with the events that were not lost. After [ErrSilent] or an error of
// the socket the Conn is not usable.
func (c *Conn) Next(until time.Time) ([]Event, error) {
	coalesce := c.storm.active() && !c.full
	c.batch, c.full = c.batch[:0], false
	if !c.now().Before(c.heartbeatAt) {
		if c.heartbeatPending {
			return c.readQueuedHeartbeat()
		}
		if err := c.sock.rename(); err != nil {
			return nil, fmt.Errorf("renaming a thread: %w", err)
		}
		c.heartbeatPending, c.heartbeatAt = true, c.now().Add(heartbeatTimeout)
	}
	if c.heartbeatAt.Before(until) {
		until = c.heartbeatAt
	}
	for pauses := 0; coalesce && pauses < stormEndPauses; pauses++ {
		c.sock.pause(stormPause)
		if err := c.receive(time.Time{}); err != nil || len(c.batch) > 0 {
			return c.batch, err
		}
	}
	err := c.receive(until)
	return c.batch, err
}

// readQueuedHeartbeat looks for an overdue heartbeat in the queue. If this process was stopped, the heartbeat may be
// there.
func (c *Conn) readQueuedHeartbeat() ([]Event, error) {
	err := c.receive(time.Time{})
	if err == nil && c.heartbeatPending {
		return nil, ErrSilent
	}
	return c.batch, err
}

// receive fills the batch.
func (c *Conn) receive(until time.Time) error {
	err := c.sock.drain(until, c.buf, c.take)
	c.takeHeartbeats()
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case errors.Is(err, ErrOverrun):
		// The heartbeat may be lost: send another at once.
		c.heartbeatPending, c.heartbeatAt = false, c.now()
		return ErrOverrun
	default:
		return fmt.Errorf("receiving proc events: %w", err)
	}
}

// takeHeartbeats removes this process' own renames from the batch.
func (c *Conn) takeHeartbeats() {
	kept := c.batch[:0]
	for i := range c.batch {
		if e := &c.batch[i]; e.Kind == Comm && e.TGID == c.self {
			c.heartbeatPending, c.heartbeatAt = false, c.now().Add(heartbeatInterval)
			continue
		}
		kept = append(kept, c.batch[i])
	}
	c.batch = kept
}

// accept adds the messages of one datagram to the batch. It returns false when the batch is full. After a malformed
// message it skips the remaining datagram.
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
		// Without this request, kernels before 6.6 count this process as a listener forever, and keep sending events.
		_ = c.sock.send(request(opIgnore, 0))
		c.closed = c.sock.close()
	})
	return c.closed
}

// storm detects a high rate of events by the kernel's timestamps.
type storm struct {
	times [stormEvents + 1]uint64
	next  int
}

func (s *storm) add(t uint64) {
	s.times[s.next] = t
	s.next = (s.next + 1) % len(s.times)
}

// active reports whether more than stormEvents events came within stormSpan. CPUs are not synchronized, so the oldest
// may be a little later than the newest.
func (s *storm) active() bool {
	oldest, newest := s.times[s.next], s.times[(s.next+len(s.times)-1)%len(s.times)]
	return oldest != 0 && (newest < oldest || newest-oldest <= uint64(stormSpan))
}

// unavailable returns an error with the missing requirement.
func unavailable(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: it needs %s", ErrUnavailable, what)
	}
	return fmt.Errorf("%w: it needs %s: %w", ErrUnavailable, what, err)
}

// missing returns the requirement that an error of the kernel indicates.
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
