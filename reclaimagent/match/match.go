// SPDX-License-Identifier: Apache-2.0

// Package match answers one question: does a process, given the kernel's name
// for it and its arguments, match what the owner asked for, and by which
// pattern? It knows nothing about where either comes from.
package match

import "slices"

// A Source says which part of a process matched.
type Source string

const (
	// Comm is the kernel's name of a process, /proc/<pid>/comm.
	Comm Source = "comm"
	// Argv is the arguments of a process, joined by blanks.
	Argv Source = "argv"
)

// MaxComm is the length in bytes of the longest name the kernel keeps:
// TASK_COMM_LEN in <linux/sched.h> less the NUL.
const MaxComm = 15

// A Hit is a pattern that matched. The zero Hit is none.
type Hit struct {
	Pattern string
	Source  Source
}

// A Matcher holds compiled patterns. It never changes, so any number of
// goroutines may use it. It allocates nothing after New.
type Matcher struct {
	commands map[string]struct{}
	argv     *automaton
	patterns []string
}

// New compiles a matcher: commands equal a name, substrings are part of the
// arguments, both byte for byte. Empty strings match nothing, and neither do
// substrings with a NUL, because a NUL ends an argument.
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
	// A map lookup by a converted slice does not allocate. A hit may.
	if _, ok := m.commands[string(comm)]; !ok {
		return Hit{}, false
	}
	return Hit{Pattern: string(comm), Source: Comm}, true
}

// Match reports which pattern a process matches: first a command by its name
// comm, then the first substring in list order. argv is as the kernel gives it,
// every argument followed by a NUL.
func (m *Matcher) Match(comm, argv []byte) (Hit, bool) {
	if hit, ok := m.Comm(comm); ok {
		return hit, true
	}
	s := m.Scan()
	s.Feed(argv)
	return s.Hit()
}

// TooLong returns the commands that can never equal a name because the kernel
// cuts names after [MaxComm] bytes. In the arguments they may still be found.
func TooLong(commands []string) []string {
	var long []string
	for _, c := range commands {
		if len(c) > MaxComm {
			long = append(long, c)
		}
	}
	return long
}

// A Scan looks for the substrings in arguments that come in pieces, so that
// arguments of any length need one small buffer. A Scan must come from
// [Matcher.Scan] and belongs to one goroutine.
type Scan struct {
	m     *Matcher
	state int32
	best  int32
	// held says that the last byte so far was a NUL. The one that ends the
	// last argument is not a blank, and only the next piece tells.
	held bool
}

// Scan starts looking at the arguments of a process.
func (m *Matcher) Scan() Scan { return Scan{m: m, best: none} }

// Feed looks at the next piece of the arguments.
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

// Hit reports the first substring, in list order, that was found so far.
func (s *Scan) Hit() (Hit, bool) {
	if s.best == none {
		return Hit{}, false
	}
	return Hit{Pattern: s.m.patterns[s.best], Source: Argv}, true
}
