// SPDX-License-Identifier: Apache-2.0

package process

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"testing/synctest"
)

// stuckThread is a proc root in which the arguments of one thread block readers until release is closed.
type stuckThread struct {
	fstest.MapFS
	release chan struct{}
	open    int
}

func (s *stuckThread) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if err != nil || name != "5/task/6/cmdline" {
		return f, err
	}
	s.open++
	return &stuckFile{f, s}, nil
}

type stuckFile struct {
	fs.File
	s *stuckThread
}

func (f *stuckFile) Read([]byte) (int, error) {
	<-f.s.release
	return 0, fs.ErrClosed
}

func (f *stuckFile) Close() error {
	f.s.open--
	return nil
}

// TestAnAbandonedReadOfAThreadClosesItsFile blocks the read of a thread until its goroutine is abandoned.
func TestAnAbandonedReadOfAThreadClosesItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuckThread{release: make(chan struct{}), MapFS: fstest.MapFS{
			"5/comm": {Data: []byte("x\n")}, "5/cmdline": {}, "5/task/6/cmdline": {},
			"5/stat": {Data: []byte("5 (x) Z 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 2 0 777 0 0\n")},
		}}
		table := FromFS(s, 0)
		go func() {
			_ = table.VisitPID(5, func(p *Process) bool { return p.Argv(discard{}) == nil })
			t.Error("the abandoned goroutine continues")
		}()
		<-table.Hung()
		if s.open != 1 {
			t.Fatalf("%d files are open", s.open)
		}
		close(s.release)
		synctest.Wait()
		if s.open != 0 {
			t.Errorf("%d files stay open", s.open)
		}
	})
}

// discard is a Feeder that drops its input.
type discard struct{}

func (discard) Feed([]byte) {}
