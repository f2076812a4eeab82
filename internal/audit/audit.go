// SPDX-License-Identifier: Apache-2.0

// Package audit answers one question: what did the manager try to do to machines, why,
// and what became of it? It keeps one line of JSON for each try. It knows nothing about
// Kubernetes, and what decides never reads it.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Stdout is the path that means standard output.
const Stdout = "-"

// backlog is how many lines may wait for a file. Nobody waits for it: behind a volume that
// hangs there is an owner.
const backlog = 10_000

var errFull = errors.New("the file takes no more")

// A Log takes lines. It may be used by many at the same time. Nil takes none.
type Log struct {
	// Failed is told of every line that could not be written; nil is not.
	Failed func(error)

	// waiting are lines on their way to a file, nil where each is written at once. An empty one
	// asks for an answer by flushed.
	waiting chan []byte
	flushed chan struct{}

	mu  sync.Mutex
	out io.Writer
	// path is that of the file which out is; empty for what is none.
	path string
	// torn says that the last line was written in part: the next begins a new one.
	torn bool
}

// New returns a Log that writes each line to out, with one call.
func New(out io.Writer) *Log { return &Log{out: out} }

// Open returns a Log that appends to the file at path, which it makes for nobody else to
// read. For Stdout it is standard output, and for an empty path nil.
func Open(path string) (*Log, error) {
	switch path {
	case "":
		return nil, nil
	case Stdout:
		return begin(New(os.Stdout)), nil
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	return begin(&Log{out: f, path: path}), nil
}

func open(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // whoever starts the manager names it
}

// begin has l write by itself.
func begin(l *Log) *Log {
	l.waiting, l.flushed = make(chan []byte, backlog), make(chan struct{}, 1)
	go func() {
		for text := range l.waiting {
			if text == nil {
				l.flushed <- struct{}{}
				continue
			}
			l.append(text)
		}
	}()
	return l
}

// Flush waits until the lines are written that were there before, or ctx ends. It is for the
// end of the program.
func (l *Log) Flush(ctx context.Context) {
	if l == nil || l.waiting == nil {
		return
	}
	select {
	case l.waiting <- nil:
	case <-ctx.Done():
		return
	}
	select {
	case <-l.flushed:
	case <-ctx.Done():
	}
}

// Write appends a line, and does not wait for a file that Open has opened. That it cannot is
// no error of whoever did something: Failed is told, and the line is lost.
func (l *Log) Write(line Line) {
	if l == nil {
		return
	}
	line.Time = line.Time.UTC()
	text, err := json.Marshal(line)
	if err != nil {
		l.fail(fmt.Errorf("encoding line of audit log: %w", err))
		return
	}
	text = append(text, '\n')
	if l.waiting == nil {
		l.append(text)
		return
	}
	select {
	case l.waiting <- text:
	default:
		l.fail(fmt.Errorf("writing audit log: %w", errFull))
	}
}

// append writes a line with one call.
func (l *Log) append(text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.follow(); err != nil {
		l.fail(fmt.Errorf("opening audit log again: %w", err))
		return
	}
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.out.Write(text)
	if n > 0 {
		l.torn = err != nil
	}
	if err != nil {
		l.fail(fmt.Errorf("writing audit log: %w", err))
	}
}

// follow opens the file again where it was rotated.
func (l *Log) follow() error {
	f, ok := l.out.(*os.File)
	if !ok || l.path == "" || !rotated(f, l.path) {
		return nil
	}
	again, err := open(l.path)
	if err != nil {
		return err
	}
	_ = f.Close() // Each line was written with one call.
	l.out, l.torn = again, false
	return nil
}

// rotated reports whether the path is that of another file by now, or of none. What cannot be
// looked at is the file that it was.
func rotated(f *os.File, path string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(was, is)
}

func (l *Log) fail(err error) {
	if l.Failed != nil {
		l.Failed(err)
	}
}
