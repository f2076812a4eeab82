// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readyFile exists once the kubelet answers.
const readyFile = "ready"

// The programs of a node.
const (
	containerd = "containerd"
	kubelet    = "kubelet"
)

// upTimeout bounds their start. They take 3 s on two idle cores. It is shorter than the tests' wait for a Machine, so
// that the error is visible.
const upTimeout = 90 * time.Second

// Warden runs the node described in dir until in is closed, and then removes every trace of it. It requires its own
// mount namespace. It must be called from the main goroutine of a process that does nothing else.
func Warden(dir string, in io.Reader) error {
	unix.CloseOnExec(lockedFD)
	// Children die with the thread that started them (PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	s, err := readSpec(dir)
	if err != nil {
		return fmt.Errorf("reading specification: %w", err)
	}
	// Orphans, such as the runtime's shims, become children of the warden.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming subreaper: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	groups, err := s.groups()
	if err == nil {
		err = s.run(ctx, groups)
	}
	if ctx.Err() != nil {
		err = nil // ended on request
	}
	return errors.Join(err, s.cleanUp(groups))
}

func (s Spec) run(ctx context.Context, groups []string) error {
	if err := s.mounts(); err != nil {
		return fmt.Errorf("preparing mounts: %w", err)
	}
	if err := s.makeCgroups(groups); err != nil {
		return fmt.Errorf("preparing control groups: %w", err)
	}
	ended := make(chan error, 2)
	if err := s.up(ctx, ended); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// up starts the programs of the node, and returns when the kubelet answers. It sends their exits to ended.
func (s Spec) up(ctx context.Context, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := s.start(ended, containerd, "--config", s.path("containerd.toml")); err != nil {
		return err
	}
	if err := s.await(ctx, ended, containerd, func() error { return dial("unix", s.path(containerdSocket)) }); err != nil {
		return err
	}
	if err := s.importImages(ctx); err != nil {
		return err
	}
	err := s.start(ended, kubelet, "--config", s.path("kubelet.yaml"), "--kubeconfig", s.path("kubeconfig"), "--root-dir", s.path("kubelet"),
		"--cert-dir", s.path("pki"), "--hostname-override", s.NodeName, "--node-ip", s.Address, "--v", "2")
	if err != nil {
		return err
	}
	if err := s.await(ctx, ended, kubelet, func() error { return healthy(ctx, s.HealthPort) }); err != nil {
		return err
	}
	return os.WriteFile(s.path(readyFile), nil, 0o600)
}

func (s Spec) start(ended chan<- error, name string, args ...string) error {
	log, err := os.OpenFile(s.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(s.Bin, name), args...) //nolint:gosec,noctx // ended by cleanUp
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+s.Bin+":"+filepath.Dir(s.Runc)+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.startProgram(cmd); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait()
		ended <- fmt.Errorf("%s ended: %s\n%s", name, cmd.ProcessState, s.logTail(name))
	}()
	return nil
}

// await returns when a program is ready. If it ends before that, the error has the end of its log.
func (s Spec) await(ctx context.Context, ended <-chan error, name string, ready func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		not := ready()
		if not == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", name, ctx.Err(), not, s.logTail(name))
		case err := <-ended:
			return err
		case <-tick.C:
		}
	}
}

func dial(network, address string) error {
	c, err := net.Dial(network, address) //nolint:noctx // local
	if err != nil {
		return err
	}
	return c.Close()
}

func healthy(ctx context.Context, port int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (s Spec) importImages(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(s.Images, "*.tar"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := Import(ctx, s.Bin, s.Dir, f); err != nil {
			return err
		}
	}
	return nil
}
