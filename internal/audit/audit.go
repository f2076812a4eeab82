// SPDX-License-Identifier: Apache-2.0

// Package audit writes the decision audit log: one line of JSON for each write to an object of a machine, with
// its reason and outcome. It imports no Kubernetes package. No decision reads the log.
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

// backlog is how many lines may wait to be written to a file. Callers do not block: an owner must not wait
// because a volume hangs.
const backlog = 10_000

var errFull = errors.New("the file takes no more")

// A Log writes lines. It is safe for concurrent use. A nil Log drops them.
type Log struct {
	// Failed is called for every line that could not be written. It may be nil.
	Failed func(error)

	// waiting has the lines that wait for the file. It is nil if Write writes synchronously. An empty line
	// requests a signal on flushed.
	waiting chan []byte
	flushed chan struct{}

	mu  sync.Mutex
	out io.Writer
	// path is the path of the open file, empty for other outputs.
	path string
	// torn reports that the latest line was written in part. The next write starts with a newline.
	torn bool
}

// New returns a Log that writes each line to out with one call.
func New(out io.Writer) *Log { return &Log{out: out} }

// Open returns a Log that appends to the file at path. It creates the file with mode 0600. The path Stdout
// means standard output. For an empty path it returns nil.
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
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // an argument of the manager
}

// begin starts the background writer of l.
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

// Flush waits until all earlier lines are written or ctx ends. It is for the end of the program.
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

// Write appends a line. It does not block on a file that Open has opened. A line that cannot be written is
// lost: Failed is called, and the action of the caller does not fail.
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
	if err := l.reopenIfRotated(); err != nil {
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

// reopenIfRotated opens the file again after a rotation.
func (l *Log) reopenIfRotated() error {
	f, ok := l.out.(*os.File)
	if !ok || l.path == "" || !rotated(f, l.path) {
		return nil
	}
	again, err := open(l.path)
	if err != nil {
		return err
	}
	// Each line is written with one call, so nothing is buffered.
	_ = f.Close()
	l.out, l.torn = again, false
	return nil
}

// rotated reports whether path is now another file or does not exist. If that cannot be determined, it returns
// false.
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
