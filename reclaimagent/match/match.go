// SPDX-License-Identifier: Apache-2.0

// Package match decides whether a process matches the owner's patterns, by its kernel name and its arguments. It uses
// no I/O.
package match

import "slices"

// Source is the part of a process that matched.
type Source string

const (
	// Comm is the kernel's name of a process, /proc/<pid>/comm.
	Comm Source = "comm"
	// Argv is the arguments of a process, joined by blanks.
	Argv Source = "argv"
)

// maxComm is the maximum length in bytes of a name in the kernel: TASK_COMM_LEN in <linux/sched.h> minus the NUL.
const maxComm = 15

// Hit is a pattern that matched. The zero value means no match.
type Hit struct {
	Pattern string
	Source  Source
}

// Matcher holds compiled patterns. It is immutable and safe for concurrent use. After New it allocates nothing.
type Matcher struct {
	commands map[string]struct{}
	argv     *automaton
	patterns []string
}

// New compiles a matcher. A command must equal the name of a process; a substring must occur in its arguments. Both
// compare bytes. Empty strings match nothing, nor do substrings with a NUL, which ends an argument.
func New(commands, substrings []string) *Matcher {
	m := &Matcher{commands: make(map[string]struct{}, len(commands)), patterns: slices.Clone(substrings)}
	for _, c := range commands {
		if c != "" {
			m.commands[c] = struct{}{}
		}
	}
	m.argv = compile(m.patterns)
	return m
}

// Comm reports whether a command equals the name comm.
func (m *Matcher) Comm(comm []byte) (Hit, bool) {
	// The map lookup with a converted slice does not allocate. A hit may allocate.
	if _, ok := m.commands[string(comm)]; !ok {
		return Hit{}, false
	}
	return Hit{Pattern: string(comm), Source: Comm}, true
}

// Match returns the pattern that a process matches: first a command by the name comm, then the first substring in list
// order. argv has the kernel's format: a NUL follows every argument.
func (m *Matcher) Match(comm, argv []byte) (Hit, bool) {
	if hit, ok := m.Comm(comm); ok {
		return hit, true
	}
	s := m.Scan()
	s.Feed(argv)
	return s.Hit()
}

// TooLong returns the commands that can never equal a name, because the kernel truncates names to maxComm bytes. They
// may still occur in arguments.
func TooLong(commands []string) []string {
	return slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return len(c) <= maxComm })
}

// Scan searches for substrings in arguments that arrive in pieces, so that a small buffer is enough for any length.
// Create it with [Matcher.Scan]. It is not safe for concurrent use.
type Scan struct {
	m     *Matcher
	state int32
	best  int32
	// held means that the last byte was a NUL. It counts as a blank only if another piece follows, because the last NUL
	// separates nothing.
	held bool
}

// Scan starts a search in the arguments of one process.
func (m *Matcher) Scan() Scan { return Scan{m: m, best: none} }

// Feed processes the next piece of the arguments.
func (s *Scan) Feed(piece []byte) {
	if len(piece) == 0 || s.best == 0 {
		return
	}
	if s.held {
		s.state, s.best = s.m.argv.run(s.state, s.best, []byte{0})
	}
	last := len(piece) - 1
	if s.held = piece[last] == 0; s.held {
		piece = piece[:last]
	}
	s.state, s.best = s.m.argv.run(s.state, s.best, piece)
}

// Hit returns the first substring, in list order, that was found so far.
func (s *Scan) Hit() (Hit, bool) {
	if s.best == none {
		return Hit{}, false
	}
	return Hit{Pattern: s.m.patterns[s.best], Source: Argv}, true
}
