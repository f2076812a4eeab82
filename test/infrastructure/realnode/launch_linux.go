// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
)

// launch runs this program again as the warden of dir, in its own mount namespace and session, because it must outlive
// this process until it has cleaned up. It inherits the lock of dir.
func launch(dir string, locked *os.File) (*node, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "node", dir) //nolint:gosec,noctx // ended by closing its input
	n := &node{dir: dir, out: &bytes.Buffer{}, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = n.out, n.out
	cmd.ExtraFiles = []*os.File{lockedFD - 3: locked}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS}
	if n.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(n.ended)
	}()
	return n, nil
}
