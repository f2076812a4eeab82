// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

var line = audit.Line{
	Time: time.Date(2026, time.March, 2, 18, 0, 0, 0, time.FixedZone("CET", 3600)), Cycle: 7,
	Kind: audit.Depart, Machine: "farm/office", Cluster: "farm/lab", Reason: "WindowClosed", GraceSeconds: 300,
	Outcome: audit.Success, ActionID: "b5d3", Lane: "scheduled", UID: "1234", By: "process-match: idea",
}

// TestALineHasEveryField checks the field names, which other programs read.
func TestALineHasEveryField(t *testing.T) {
	const want = `{"time":"2026-03-02T17:00:00Z","cycle":7,"kind":"Depart","machine":"farm/office","cluster":"farm/lab",` +
		`"reason":"WindowClosed","grace_seconds":300,"outcome":"success","action_id":"b5d3","lane":"scheduled","uid":"1234","by":"process-match: idea"}` + "\n"
	var out bytes.Buffer
	audit.New(&out).Write(line)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	audit.New(&out).Write(audit.Line{})
	for _, key := range []string{"cycle", "machine", "grace_seconds", "lane", "uid"} {
		if !strings.Contains(out.String(), `"`+key+`":`) {
			t.Errorf("a line without %s is read wrongly: %s", key, &out)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	cases := map[string]struct {
		reason, path string
		err          error
		lines        int
	}{
		"Empty":    {"Off is the default: no file is made.", "", nil, 0},
		"File":     {"It is made.", path, nil, 1},
		"Again":    {"A restart appends, and loses nothing.", path, nil, 2},
		"NoFolder": {"The manager does not start.", filepath.Join(dir, "none", "audit.jsonl"), fs.ErrNotExist, 2},
	}
	for _, name := range []string{"Empty", "File", "Again", "NoFolder"} {
		tc := cases[name]
		t.Run(name, func(t *testing.T) {
			log, err := audit.Open(tc.path)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if err == nil {
				log.Write(line)
				log.Flush(t.Context())
			}
			text, err := os.ReadFile(path)
			if err != nil && tc.lines > 0 {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n != tc.lines {
				t.Errorf("%s: %d lines, want %d", tc.reason, n, tc.lines)
			}
		})
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("others read it: %v, %v", info.Mode(), err)
	}
}

// TestAFileThatIsRotatedIsOpenedAgain renames, removes or truncates the file between lines, as logrotate does.
func TestAFileThatIsRotatedIsOpenedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		rotate func(path string) error
		// lines is the number of lines in the file of that name after one line before the rotation and one
		// after. lost is the number of failed lines.
		lines, lost int
	}{
		"Renamed": {func(path string) error { return os.Rename(path, path+".1") }, 1, 0},
		"Removed": {os.Remove, 1, 0},
		"RenamedAndMade": {func(path string) error {
			return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
		}, 1, 0},
		"Truncated":   {func(path string) error { return os.Truncate(path, 0) }, 1, 0},
		"Not":         {func(string) error { return nil }, 2, 0},
		"FolderGoes":  {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, 0, 1},
		"AnotherKind": {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log", "audit.jsonl")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			log, err := audit.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			var lost atomic.Int64
			log.Failed = func(error) { lost.Add(1) }
			log.Write(line)
			log.Flush(t.Context())
			if err := tc.rotate(path); err != nil {
				t.Fatal(err)
			}
			log.Write(line)
			log.Flush(t.Context())
			text, err := os.ReadFile(path)
			if err != nil && tc.lines > 0 {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n != tc.lines || bytes.Contains(text, []byte{0}) || int(lost.Load()) != tc.lost {
				t.Errorf("%d lines in %q, want %d; lost %d, want %d", n, text, tc.lines, lost.Load(), tc.lost)
			}
			if tc.lost == 0 {
				return
			}
			if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o700)); err != nil {
				t.Fatal(err)
			}
			log.Write(line)
			log.Flush(t.Context())
			if text, err := os.ReadFile(path); err != nil || bytes.Count(text, []byte("\n")) != 1 {
				t.Errorf("it is not tried again: %q, %v", text, err)
			}
		})
	}
}

// TestWriteDoesNotBlockOnAFile has a volume that hangs. Write does not block, surplus lines are counted, and Flush
// ends.
func TestWriteDoesNotBlockOnAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe() // There is no reader and no buffer.
		log := audit.Begin(write)
		var lost atomic.Int64
		log.Failed = func(error) { lost.Add(1) }
		const many = audit.Backlog + 100
		for range many {
			log.Write(line)
		}
		if n := lost.Load(); n < 99 || n > 100 {
			t.Errorf("%d lines are counted as lost", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if log.Flush(ctx); ctx.Err() == nil {
			t.Error("it says that all is written")
		}
		kept := many - int(lost.Load())
		for lines := bufio.NewScanner(read); kept > 0 && lines.Scan(); kept-- {
			if !json.Valid(lines.Bytes()) {
				t.Fatalf("%q", lines.Text())
			}
		}
		log.Flush(t.Context())
		log.Stop()
	})
}

// TestManyWriteOneLineEach writes concurrently: each line is one call and is not interleaved with others.
func TestManyWriteOneLineEach(t *testing.T) {
	out := &calls{}
	log := audit.New(out)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { log.Write(line) })
	}
	all.Wait()
	for _, text := range out.texts {
		var got audit.Line
		if err := json.Unmarshal([]byte(text), &got); err != nil || strings.Count(text, "\n") != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
	if len(out.texts) != 50 {
		t.Errorf("%d calls for 50 lines", len(out.texts))
	}
}

// TestAFullDiskIsCounted fills the disk in the middle of a line, and frees it.
func TestAFullDiskIsCounted(t *testing.T) {
	out := &calls{}
	log := audit.New(out)
	var failures []error
	log.Failed = func(err error) { failures = append(failures, err) }
	log.Write(line)
	out.limited, out.room = true, 10
	log.Write(line)
	out.room = 0
	log.Write(line)
	out.limited = false
	log.Write(line)
	if len(failures) != 2 || !errors.Is(failures[0], syscall.ENOSPC) {
		t.Errorf("failures are %v", failures)
	}
	lines := slices.DeleteFunc(strings.Split(strings.Join(out.texts, ""), "\n"), func(s string) bool { return s == "" })
	whole := 0
	for _, text := range lines {
		if json.Valid([]byte(text)) {
			whole++
		}
	}
	if whole != 2 || len(lines) != 3 {
		t.Errorf("a line that was torn takes no other with it: %q", lines)
	}
	var none *audit.Log
	none.Write(line)
	audit.New(&calls{limited: true}).Write(line)
}

// calls is a disk. Once limited, it accepts a limited number of bytes per call.
type calls struct {
	mu      sync.Mutex
	texts   []string
	limited bool
	room    int
}

func (c *calls) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limited {
		c.texts = append(c.texts, string(text[:c.room]))
		return c.room, syscall.ENOSPC
	}
	c.texts = append(c.texts, string(text))
	return len(text), nil
}
