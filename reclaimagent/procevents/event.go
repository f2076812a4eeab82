// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of [Parse]. Later datagrams remain usable.
var ErrMalformed = errors.New("malformed proc event")

// Kind is the kind of a message.
type Kind uint8

// Other is any kind that the agent does not use.
const (
	Other Kind = iota
	// Ack acknowledges a request of this or another listener.
	Ack
	// Exec means that a process runs a new program. Its name and arguments are already set.
	Exec
	// Comm means that a thread has a new name.
	Comm
)

// Event is one message of the proc connector.
type Event struct {
	Kind Kind
	// PID is the thread and TGID the process, in the initial PID namespace.
	PID, TGID int
	// Time is the kernel's timestamp, in nanoseconds of CLOCK_MONOTONIC.
	Time uint64
	// Token of an Ack is the token of its request plus one. Err is an errno or zero.
	Token, Err uint32

	comm [16]byte
}

// Comm returns the new name of a Comm event.
func (e *Event) Comm() []byte {
	if end := bytes.IndexByte(e.comm[:], 0); end >= 0 {
		return e.comm[:end]
	}
	return e.comm[:]
}

// Layout of a message: a 16-byte nlmsghdr (<linux/netlink.h>), a 20-byte cn_msg (<linux/connector.h>), then what, cpu
// and timestamp of a proc_event (<linux/cn_proc.h>), and the data that depends on what.
const (
	headerSize  = 16
	connectSize = 20

	idxOffset  = headerSize
	valOffset  = headerSize + 4
	ackOffset  = headerSize + 12
	lenOffset  = headerSize + 16
	bodyOffset = headerSize + connectSize

	whatOffset = bodyOffset
	timeOffset = bodyOffset + 8
	dataOffset = bodyOffset + 16

	pidOffset  = dataOffset
	tgidOffset = dataOffset + 4
	commOffset = dataOffset + 8
)

// Values from the same headers.
const (
	typeDone = 3 // NLMSG_DONE

	idxProc = 1 // CN_IDX_PROC
	valProc = 1 // CN_VAL_PROC

	opListen = 1 // PROC_CN_MCAST_LISTEN
	opIgnore = 2 // PROC_CN_MCAST_IGNORE

	whatAck  = 0x000
	whatExec = 0x002
	whatComm = 0x200
)

// Parse decodes the first message of a datagram and returns the remaining bytes. After an error, remaining is empty,
// because the datagram is not usable.
func Parse(b []byte) (e Event, remaining []byte, err error) {
	if len(b) < headerSize {
		return Event{}, nil, fmt.Errorf("%w: %d bytes, want a header of %d", ErrMalformed, len(b), headerSize)
	}
	// Compare as unsigned: the length may exceed an int.
	length := binary.NativeEndian.Uint32(b)
	if length < dataOffset || uint64(length) > uint64(len(b)) {
		return Event{}, nil, fmt.Errorf("%w: length %d in a datagram of %d bytes", ErrMalformed, length, len(b))
	}
	// Messages are aligned to 4 bytes (NLMSG_ALIGN).
	remaining = b[min((uint64(length)+3)&^3, uint64(len(b))):]
	e, err = parseMessage(b[:length])
	if err != nil {
		remaining = nil
	}
	return e, remaining, err
}

// parseMessage decodes one message of at least dataOffset bytes.
func parseMessage(m []byte) (Event, error) {
	u32 := func(offset int) uint32 { return binary.NativeEndian.Uint32(m[offset:]) }
	if u32(idxOffset) != idxProc || u32(valOffset) != valProc {
		return Event{Kind: Other}, nil
	}
	if size := int(binary.NativeEndian.Uint16(m[lenOffset:])); size < dataOffset-bodyOffset || size > len(m)-bodyOffset {
		return Event{}, fmt.Errorf("%w: %d bytes of event in %d", ErrMalformed, size, len(m)-bodyOffset)
	}
	e := Event{Time: binary.NativeEndian.Uint64(m[timeOffset:])}
	want := dataOffset
	switch u32(whatOffset) {
	case whatAck:
		e.Kind, want = Ack, pidOffset+4
	case whatExec:
		e.Kind, want = Exec, tgidOffset+4
	case whatComm:
		e.Kind, want = Comm, commOffset+len(e.comm)
	}
	if len(m) < want {
		return Event{}, fmt.Errorf("%w: %d bytes, want at least %d", ErrMalformed, len(m), want)
	}
	switch e.Kind {
	case Ack:
		e.Token, e.Err = u32(ackOffset), u32(pidOffset)
	case Exec, Comm:
		e.PID, e.TGID = int(u32(pidOffset)), int(u32(tgidOffset))
		if e.Kind == Comm {
			copy(e.comm[:], m[commOffset:])
		}
	case Other:
	}
	return e, nil
}

// request returns a message that starts or ends a subscription. It uses the form of 4 bytes. Kernels do not acknowledge
// the form with an event mask (6.6 and later), because the mask filters the acknowledgement as well. The token is in
// the field ack: the kernel returns it plus one, but overwrites seq (drivers/connector/cn_proc.c, cn_proc_ack and
// send_msg).
func request(op, token uint32) []byte {
	b := make([]byte, 0, bodyOffset+4)
	u32 := func(v uint32) { b = binary.NativeEndian.AppendUint32(b, v) }
	u32(bodyOffset + 4)
	b = binary.NativeEndian.AppendUint16(b, typeDone)
	b = binary.NativeEndian.AppendUint16(b, 0) // flags
	u32(0)                                     // sequence of the nlmsghdr
	u32(0)                                     // port: the kernel knows it
	u32(idxProc)
	u32(valProc)
	u32(0) // seq
	u32(token)
	b = binary.NativeEndian.AppendUint16(b, 4) // length of what follows
	b = binary.NativeEndian.AppendUint16(b, 0) // flags
	u32(op)
	return b
}
