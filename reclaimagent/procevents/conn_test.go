// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const self = 77

// kernel is a socket with functions and a queue, in synctest's time.
type kernel struct {
	queue   [][]byte
	arrived chan struct{}
	overrun bool
	closed  bool
	pauses  int
	sent    [][]byte

	// onSend and onRename are the kernel's reactions. Nil means none.
	onSend   func(k *kernel, b []byte) error
	onRename func(k *kernel)
}

func newKernel() *kernel {
	return &kernel{arrived: make(chan struct{}, 1), onSend: acknowledge, onRename: announce}
}

func (k *kernel) push(messages ...[]byte) {
	k.queue = append(k.queue, messages...)
	select {
	case k.arrived <- struct{}{}:
	default:
	}
}

func (k *kernel) drain(deadline time.Time, _ []byte, take func([]byte) bool) error {
	for len(k.queue) == 0 && !k.overrun {
		if deadline.IsZero() || !time.Now().Before(deadline) {
			return os.ErrDeadlineExceeded
		}
		select {
		case <-k.arrived:
		case <-time.After(time.Until(deadline)):
		}
	}
	for len(k.queue) > 0 {
		b := k.queue[0]
		k.queue = k.queue[1:]
		if !take(b) {
			return nil
		}
	}
	if k.overrun {
		k.overrun = false
		return ErrOverrun
	}
	return nil
}

func (k *kernel) send(b []byte) error {
	k.sent = append(k.sent, b)
	if k.onSend == nil {
		return nil
	}
	return k.onSend(k, b)
}

func (k *kernel) rename() error {
	if k.onRename != nil {
		k.onRename(k)
	}
	return nil
}

func (k *kernel) pause(d time.Duration) { k.pauses++; time.Sleep(d) }
func (k *kernel) close() error          { k.closed = true; return nil }

// message builds a message of the kernel.
func message(what, ack uint32, at uint64, data ...uint32) []byte {
	b := make([]byte, dataOffset+24)
	put := func(offset int, v uint32) { binary.NativeEndian.PutUint32(b[offset:], v) }
	put(0, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], typeDone)
	put(idxOffset, idxProc)
	put(valOffset, valProc)
	put(ackOffset, ack)
	binary.NativeEndian.PutUint16(b[lenOffset:], uint16(len(b)-bodyOffset))
	put(whatOffset, what)
	binary.NativeEndian.PutUint64(b[timeOffset:], at)
	for i, v := range data {
		put(dataOffset+4*i, v)
	}
	return b
}

func exec(pid uint32) []byte              { return message(whatExec, 0, 1<<40+uint64(pid)*1e9, pid, pid) }
func execAt(pid uint32, at uint64) []byte { return message(whatExec, 0, at, pid, pid) }

func comm(pid, tgid uint32, name string) []byte {
	b := message(whatComm, 0, 1, pid, tgid)
	copy(b[commOffset:commOffset+16], name)
	return b
}

func acknowledge(k *kernel, b []byte) error {
	k.push(message(whatAck, binary.NativeEndian.Uint32(b[ackOffset:])+1, 1, 0))
	return nil
}

func announce(k *kernel) { k.push(comm(self+3, self, "agent")) }

func subscribed(t *testing.T, k *kernel) *Conn {
	t.Helper()
	c := newConn(k, Options{Now: time.Now}, self)
	if err := c.subscribe(); err != nil {
		t.Fatalf("subscribing: %v", err)
	}
	return c
}

func TestSubscribe(t *testing.T) {
	cases := map[string]struct {
		reason   string
		onSend   func(k *kernel, b []byte) error
		onRename func(k *kernel)
		want     error
		within   time.Duration
	}{
		"Acknowledged": {
			reason: "The kernel answers and announces our own renaming.",
			onSend: acknowledge, onRename: announce,
		},
		"BusyMachine": {
			reason:   "Events between request and answer do not confuse.",
			onSend:   func(k *kernel, b []byte) error { k.push(exec(1), exec(2)); return acknowledge(k, b) },
			onRename: func(k *kernel) { k.push(exec(3)); announce(k) },
		},
		"NoAnswer": {
			reason: "The kernel ignores other PID and user namespaces silently.",
			onSend: nil, want: ErrUnavailable, within: ackTimeout,
		},
		"AnswerToAnother": {
			reason: "A listener receives the acknowledgements of others.",
			onSend: func(k *kernel, _ []byte) error { k.push(message(whatAck, 1, 1, 0)); return nil },
			want:   ErrUnavailable, within: ackTimeout,
		},
		"EventsWithoutAnswer": {
			reason: "Events without an acknowledgement do not suffice.",
			onSend: func(k *kernel, _ []byte) error { k.push(exec(1)); return nil },
			want:   ErrUnavailable, within: ackTimeout,
		},
		"Refused": {
			reason: "Older kernels require a capability; the acknowledgement has the error.",
			onSend: func(k *kernel, b []byte) error {
				k.push(message(whatAck, binary.NativeEndian.Uint32(b[ackOffset:])+1, 1, uint32(syscall.EPERM)))
				return nil
			},
			want: syscall.EPERM,
		},
		"OtherNetwork": {
			reason: "Another network namespace has no connector.",
			onSend: func(*kernel, []byte) error { return syscall.ECONNREFUSED },
			want:   syscall.ECONNREFUSED,
		},
		"SilentAfterwards": {
			reason: "Some kernels drop a listener with a filter.",
			onSend: acknowledge, onRename: nil, want: ErrSilent, within: heartbeatTimeout,
		},
		"OverrunMeanwhile": {
			reason:   "A heartbeat that was lost is sent again.",
			onSend:   acknowledge,
			onRename: func(k *kernel) { k.onRename, k.overrun = announce, true },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				k.onSend, k.onRename = tc.onSend, tc.onRename
				start := time.Now()
				err := newConn(k, Options{Now: time.Now}, self).subscribe()
				if !errors.Is(err, tc.want) {
					t.Errorf("%s\nsubscribe() = %v, want %v", tc.reason, err, tc.want)
				}
				if took := time.Since(start); took > tc.within {
					t.Errorf("%s\nsubscribe() took %v, want at most %v", tc.reason, took, tc.within)
				}
			})
		})
	}
}

// brief has the fields of an event that tests compare.
type brief struct {
	Kind Kind
	PID  int
	Comm string
}

func briefs(events []Event) []brief {
	var got []brief
	for i := range events {
		got = append(got, brief{events[i].Kind, events[i].TGID, string(events[i].Comm())})
	}
	return got
}

func TestNext(t *testing.T) {
	torn := exec(9)[:30]
	cases := map[string]struct {
		reason  string
		queue   [][]byte
		overrun bool
		want    []brief
		err     error
	}{
		"Batch":         {"All that is queued comes at once.", [][]byte{exec(1), comm(2, 2, "java")}, false, []brief{{Exec, 1, ""}, {Comm, 2, "java"}}, nil},
		"TwoInOne":      {"A datagram may hold several messages.", [][]byte{append(exec(1), exec(2)...)}, false, []brief{{Exec, 1, ""}, {Exec, 2, ""}}, nil},
		"Threads":       {"Names of threads are ignored.", [][]byte{comm(5, 4, "GC"), exec(1)}, false, []brief{{Exec, 1, ""}}, nil},
		"OwnThreads":    {"A heartbeat is not returned.", [][]byte{comm(78, self, "x"), exec(1)}, false, []brief{{Exec, 1, ""}}, nil},
		"OtherKinds":    {"Without a filter forks and exits arrive too.", [][]byte{message(1, 0, 1, 3, 3), message(0x80000000, 0, 1, 3, 3), exec(1)}, false, []brief{{Exec, 1, ""}}, nil},
		"TornMessage":   {"One broken message does not end the stream.", [][]byte{torn, exec(1)}, false, []brief{{Exec, 1, ""}}, nil},
		"OverrunKeeps":  {"Events that were not lost are returned.", [][]byte{exec(1)}, true, []brief{{Exec, 1, ""}}, ErrOverrun},
		"NothingInTime": {"Next returns at the given time.", nil, false, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				c := subscribed(t, k)
				k.push(tc.queue...)
				k.overrun = tc.overrun
				got, err := c.Next(time.Now().Add(time.Second))
				if diff := cmp.Diff(tc.want, briefs(got)); diff != "" || !errors.Is(err, tc.err) {
					t.Errorf("%s\nNext(), error %v, want %v: -want, +got:\n%s", tc.reason, err, tc.err, diff)
				}
				k.push(exec(8))
				if got, err := c.Next(time.Now().Add(time.Second)); err != nil || len(got) != 1 {
					t.Errorf("The Conn remains usable: %v, %v", briefs(got), err)
				}
			})
		})
	}
}

func TestHeartbeat(t *testing.T) {
	cases := map[string]struct {
		reason   string
		onRename func(k *kernel)
		stopped  time.Duration
		want     error
		after    time.Duration
	}{
		"Heard":   {"Nothing is wrong.", announce, 0, nil, time.Hour},
		"Silence": {"A dropped listener is detected.", nil, 0, ErrSilent, 31 * time.Second},
		"Stopped": {"After a stop of the agent, the heartbeat is in the queue.", announce, time.Minute, nil, time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				c := subscribed(t, k)
				k.onRename = tc.onRename
				start, err := time.Now(), error(nil)
				for err == nil && time.Since(start) < time.Hour {
					_, err = c.Next(time.Now().Add(time.Minute))
					time.Sleep(tc.stopped)
				}
				if !errors.Is(err, tc.want) {
					t.Errorf("%s\nNext() = %v, want %v", tc.reason, err, tc.want)
				}
				if took := time.Since(start); tc.want != nil && took > tc.after {
					t.Errorf("%s\nnoticed after %v, want within %v", tc.reason, took, tc.after)
				}
			})
		})
	}
}

func TestStormIsCoalesced(t *testing.T) {
	cases := map[string]struct {
		reason string
		gap    time.Duration
		want   int
	}{
		"Storm": {"Many events, few wake-ups, and a few more before it is over.", 300 * time.Microsecond, stormEndPauses},
		"Calm":  {"A single exec is not delayed.", 10 * time.Millisecond, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKernel()
				c := subscribed(t, k)
				for i := range 10 {
					k.push(execAt(uint32(i+1), uint64(time.Second)+uint64(i)*uint64(tc.gap)))
				}
				for range 2 {
					if _, err := c.Next(time.Now().Add(time.Millisecond)); err != nil {
						t.Fatal(err)
					}
				}
				if k.pauses != tc.want {
					t.Errorf("%s\npaused %d times, want %d", tc.reason, k.pauses, tc.want)
				}
			})
		})
	}
}

func TestFullBatchGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel()
		c := subscribed(t, k)
		for i := range maxBatch + 10 {
			k.push(exec(uint32(i + 1)))
		}
		for _, want := range []int{maxBatch, 10} {
			got, err := c.Next(time.Now().Add(time.Second))
			if len(got) != want || err != nil {
				t.Errorf("Next() = %d events, error %v, want %d", len(got), err, want)
			}
		}
	})
}

func TestNextDoesNotAllocate(t *testing.T) {
	k := newKernel()
	c := subscribed(t, k)
	queue := [][]byte{exec(1), exec(2), comm(3, 3, "x")}
	now := time.Now().Add(time.Second)
	if n := testing.AllocsPerRun(50, func() {
		k.queue = queue
		if _, err := c.Next(now); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Next allocates %v times, want 0", n)
	}
}

func TestCloseEndsTheSubscriptionOnce(t *testing.T) {
	k := newKernel()
	c := subscribed(t, k)
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(request(opIgnore, 0), k.sent[len(k.sent)-1]); diff != "" || len(k.sent) != 2 || !k.closed {
		t.Errorf("%d messages sent, closed %v. The last: -want, +got:\n%s", len(k.sent), k.closed, diff)
	}
}
