// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"time"
)

// Tiny programs are a few instructions without a library. A storm of them measures the kernel and the listeners, not
// the start of a runtime. They are written as ELF files (elf(5)), so no compiler is needed.
const (
	elfHeader, programHeader = 64, 56

	// loadAt is the address of the only segment.
	loadAt = 0x400000
)

// A code is the instructions of a tiny program.
type code struct {
	machine uint16
	// exit ends at once; sleep sleeps for the timespec after it, then ends; spin
	// does neither.
	exit, sleep, spin []byte
}

// codes has the instructions by GOARCH.
var codes = map[string]code{
	"amd64": {
		machine: 62,
		// mov eax,60; xor edi,edi; syscall
		exit: []byte{0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05},
		// lea rdi,[rip+25]; xor esi,esi; mov eax,35; syscall; exit; padding
		sleep: []byte{
			0x48, 0x8d, 0x3d, 25, 0, 0, 0, 0x31, 0xf6, 0xb8, 35, 0, 0, 0, 0x0f, 0x05,
			0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
		},
		// jmp to itself
		spin: []byte{0xeb, 0xfe},
	},
	"arm64": {
		machine: 183,
		// mov x8,#93; mov x0,#0; svc #0
		exit: []byte{0xa8, 0x0b, 0x80, 0xd2, 0, 0, 0x80, 0xd2, 0x01, 0, 0, 0xd4},
		// adr x0,#32; mov x1,#0; mov x8,#101; svc #0; exit; nop
		sleep: []byte{
			0, 0x01, 0, 0x10, 0x01, 0, 0x80, 0xd2, 0xa8, 0x0c, 0x80, 0xd2, 0x01, 0, 0, 0xd4,
			0xa8, 0x0b, 0x80, 0xd2, 0, 0, 0x80, 0xd2, 0x01, 0, 0, 0xd4, 0x1f, 0x20, 0x03, 0xd5,
		},
		// b to itself
		spin: []byte{0, 0, 0, 0x14},
	},
}

// elf is the file of a program with these instructions.
func elf(machine uint16, instructions []byte) []byte {
	const codeAt = elfHeader + programHeader
	size := uint64(codeAt + len(instructions))
	b := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	le := binary.LittleEndian
	u16 := func(v uint16) { b = le.AppendUint16(b, v) }
	u32 := func(v uint32) { b = le.AppendUint32(b, v) }
	u64 := func(v uint64) { b = le.AppendUint64(b, v) }
	u16(2) // an executable
	u16(machine)
	u32(1)
	u64(loadAt + codeAt) // entry
	u64(elfHeader)       // where the program headers are
	u64(0)               // no section headers
	u32(0)
	for _, v := range []uint16{elfHeader, programHeader, 1, 0, 0, 0} {
		u16(v)
	}
	u32(1) // to be loaded
	u32(5) // readable and executable
	u64(0)
	u64(loadAt)
	u64(loadAt)
	u64(size)
	u64(size)
	u64(0x10000)
	return append(b, instructions...)
}

// sleeping is the program that lives for d.
func (c code) sleeping(d time.Duration) []byte {
	b := append([]byte{}, c.sleep...)
	b = binary.LittleEndian.AppendUint64(b, uint64(d/time.Second))    //nolint:gosec // positive
	return binary.LittleEndian.AppendUint64(b, uint64(d%time.Second)) //nolint:gosec // positive
}

// tiny returns the instructions for this machine.
func tiny() (code, error) {
	c, ok := codes[runtime.GOARCH]
	if !ok {
		return c, fmt.Errorf("there are no tiny programs for %s", runtime.GOARCH)
	}
	return c, nil
}

// writeTiny writes a program of these instructions.
func (c code) writeTiny(path string, instructions []byte) error {
	return os.WriteFile(path, elf(c.machine, instructions), 0o700) //nolint:gosec // an executable
}
