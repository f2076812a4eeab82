// SPDX-License-Identifier: Apache-2.0

//go:build linux

package detect_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
)

// hangEnv is the variable with the file on which the process of TestHelperHang blocks.
const hangEnv = "FIVESPOT_TEST_HANG_ON"

// TestIntegrationHang: a real process blocks every reader of its arguments, as if a file server is down. One of its
// threads waits for a page of a file and holds a lock of its address space. A second thread waits for that lock, and
// blocks all readers.
func TestIntegrationHang(t *testing.T) {
	modes(t, func(t *testing.T, mode detect.Mode) {
		t.Helper()
		name := fmt.Sprintf("5s-h-%d", os.Getpid())
		path := program(t, name)
		before := spawn(t, path, "60")
		hung := hangingProcess(t)
		answered := make(chan struct{})
		go func() {
			_, _ = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", hung.Process.Pid))
			close(answered)
		}()
		found := watch(t, mode, nil, []string{name})
		await(t, found, before.Process.Pid, match.Argv)
		after := spawn(t, path, "60")
		await(t, found, after.Process.Pid, match.Argv)
		runtime.GC() // Garbage collection would wait for a blocked thread that the runtime does not know to be blocked.
		select {
		case <-answered:
			t.Error("the arguments of the process can be read, so this test checks nothing")
		default:
		}
	})
}

// TestHelperHang is the process of TestIntegrationHang.
func TestHelperHang(t *testing.T) {
	path := os.Getenv(hangEnv)
	if path == "" {
		t.Skip("it is started by another test")
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel reads the length of the file only with this call.
	if _, err := f.Stat(); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = fmt.Fprint(io.Discard, page[0]) }()
	_, _ = os.Stdin.Read(make([]byte, 1)) // The thread is blocked.
	_, _ = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	select {}
}

// hangingProcess starts a process whose arguments block every reader.
func hangingProcess(t *testing.T) *osexec.Cmd {
	t.Helper()
	path, stuck := brokenFile(t)
	cmd := osexec.Command(os.Args[0], "-test.run=^TestHelperHang$")
	cmd.Env = append(os.Environ(), hangEnv+"="+path, "GOMAXPROCS=4", "GOGC=off")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	select {
	case <-stuck:
	case <-time.After(10 * time.Second):
		t.Fatal("no process reads the file")
	}
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); waiting(t, cmd.Process.Pid) < 2; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Skip("this kernel lets the process go on")
		}
	}
	return cmd
}

// waiting counts the threads of a process in uninterruptible sleep.
func waiting(t *testing.T, pid int) (n int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		raw, _ := os.ReadFile(thread)
		if _, rest, _ := strings.Cut(string(raw), ") "); strings.HasPrefix(rest, "D") {
			n++
		}
	}
	return n
}

// Operations and sizes of <linux/fuse.h>.
const (
	fuseGetattr, fuseOpen, fuseRead, fuseInit        = 3, 14, 15, 26
	fuseInHeader, fuseInitOut, fuseAttr, fuseOpenOut = 40, 64, 104, 16
	fuseOutHeader                                    = 16
)

// brokenFile mounts a file whose first page cannot be read. The first read returns an error, so that the kernel retries
// with a lock. The second read never returns; stuck is closed then.
func brokenFile(t *testing.T) (path string, stuck <-chan struct{}) {
	t.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no file system of our own here: %v", err)
	}
	path = write(t, "")
	if err := unix.Mount("broken", path, "fuse", 0, "fd="+strconv.Itoa(server)+",rootmode=100000,user_id=0,group_id=0"); err != nil {
		_ = unix.Close(server)
		t.Skipf("no file system of our own here: %v", err)
	}
	reading := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveBroken(server, reading)
	}()
	t.Cleanup(func() {
		// Blocked readers and the server get an error.
		_ = unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = unix.Close(server)
		<-ended
	})
	return path, reading
}

func serveBroken(server int, reading chan<- struct{}) {
	buf := make([]byte, 1<<20)
	for reads := 0; ; {
		n, err := unix.Read(server, buf)
		if err != nil || n < fuseInHeader {
			return
		}
		var body []byte
		var failure int32
		switch binary.NativeEndian.Uint32(buf[4:]) {
		case fuseInit:
			body = make([]byte, fuseInitOut)
			binary.NativeEndian.PutUint32(body, 7)
			binary.NativeEndian.PutUint32(body[4:], 31)
			binary.NativeEndian.PutUint32(body[20:], 4096)
		case fuseGetattr:
			body = make([]byte, fuseAttr)
			binary.NativeEndian.PutUint64(body[16:], 1)
			binary.NativeEndian.PutUint64(body[24:], 1<<16)
			binary.NativeEndian.PutUint32(body[76:], unix.S_IFREG|0o444)
			binary.NativeEndian.PutUint32(body[80:], 1)
		case fuseOpen:
			body = make([]byte, fuseOpenOut)
		case fuseRead:
			if reads++; reads > 1 {
				close(reading)
				reading = make(chan struct{})
				continue
			}
			failure = int32(unix.EIO)
		default:
			failure = int32(unix.ENOSYS)
		}
		answer := slices.Concat(make([]byte, fuseOutHeader), body)
		binary.NativeEndian.PutUint32(answer, uint32(len(answer)))
		binary.NativeEndian.PutUint32(answer[4:], uint32(-failure))
		copy(answer[8:], buf[8:fuseOutHeader])
		if _, err := unix.Write(server, answer); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}
