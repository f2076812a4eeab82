// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
)

// filter returns a socket filter in classic BPF, which every kernel supports. It passes acknowledgements, execs,
// renames of processes, and renames of any thread of the process self, which are the heartbeat. Forks, exits and
// threads would only wake the agent and fill the buffer, which would then hold a third of the execs.
func filter(self int) ([]bpf.RawInstruction, error) {
	raw, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: whatOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(whatAck), SkipTrue: 8},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(whatExec), SkipTrue: 7},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loaded(whatComm), SkipTrue: 5},
		bpf.LoadAbsolute{Off: tgidOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: loaded(uint32(self)), SkipTrue: 4}, //nolint:gosec // a pid fits
		bpf.TAX{},
		bpf.LoadAbsolute{Off: pidOffset, Size: 4},
		bpf.JumpIfX{Cond: bpf.JumpEqual, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1 << 16},
	})
	if err != nil {
		return nil, fmt.Errorf("assembling filter: %w", err)
	}
	return raw, nil
}

// loaded returns v as a BPF load returns it: in network byte order, although the kernel writes messages in native
// order.
func loaded(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}
