// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errMalformed is wrapped by every error of parseStat.
var errMalformed = errors.New("malformed stat")

// Fields of /proc/<pid>/stat, numbered as in proc(5).
const (
	stateField   = 3
	parentField  = 4
	threadsField = 20
	startField   = 22
)

type stat struct {
	// comm points into the parsed buffer.
	comm    []byte
	state   byte
	parent  int32
	threads int
	start   uint64
}

// dead reports whether the process has ended. If only the first thread has ended, its state is zombie, but the process
// is alive.
func (s stat) dead() bool {
	return (s.state == 'Z' || s.state == 'X') && s.threads <= 1
}

// parseStat parses a stat file. The second field, the name, may contain any byte, so parseStat counts fields after the
// last parenthesis.
func parseStat(raw []byte) (stat, error) {
	begin, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if begin < 0 || end < begin {
		return stat{}, fmt.Errorf("%w: no name", errMalformed)
	}
	s := stat{comm: raw[begin+1 : end]}
	number := stateField
	for field := range bytes.FieldsSeq(raw[end+1:]) {
		var err error
		switch number {
		case stateField:
			s.state = field[0]
		case parentField:
			var parent int64
			parent, err = strconv.ParseInt(string(field), 10, 32)
			s.parent = int32(parent)
		case threadsField:
			s.threads, err = strconv.Atoi(string(field))
		case startField:
			s.start, err = strconv.ParseUint(string(field), 10, 64)
		}
		if err != nil {
			return stat{}, fmt.Errorf("%w: field %d: %w", errMalformed, number, err)
		}
		if number == startField {
			return s, nil
		}
		number++
	}
	return stat{}, fmt.Errorf("%w: %d fields, want at least %d", errMalformed, number-1, startField)
}
