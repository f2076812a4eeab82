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

// readyFile says that the kubelet answers.
const readyFile = "ready"

// Warden runs the node described in dir until in is closed, and removes every
// trace of it. It expects a mount namespace of its own, and must be called from
// the main goroutine of a process that does nothing else.
func Warden(dir string, in io.Reader) error {
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
	err = s.run(ctx)
	if ctx.Err() != nil {
		err = nil // told to end
	}
	return errors.Join(err, s.cleanUp())
}

func (s Spec) run(ctx context.Context) error {
	if err := s.mounts(); err != nil {
		return fmt.Errorf("preparing mounts: %w", err)
	}
	if err := s.makeCgroups(); err != nil {
		return fmt.Errorf("preparing control groups: %w", err)
	}
	ended := make(chan error, 2)
	if err := s.start(ended, "containerd", "--config", s.path("containerd.toml")); err != nil {
		return err
	}
	if err := s.await(ctx, ended, func() error { return dial("unix", s.path("containerd.sock")) }); err != nil {
		return err
	}
	if err := s.importImages(ctx); err != nil {
		return err
	}
	err := s.start(ended, "kubelet", "--config", s.path("kubelet.yaml"), "--kubeconfig", s.path("kubeconfig"), "--root-dir", s.path("kubelet"),
		"--cert-dir", s.path("pki"), "--hostname-override", s.NodeName, "--node-ip", s.Address, "--v", "2")
	if err != nil {
		return err
	}
	if err := s.await(ctx, ended, func() error { return healthy(ctx, s.HealthPort) }); err != nil {
		return err
	}
	if err := os.WriteFile(s.path(readyFile), nil, 0o600); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (s Spec) start(ended chan<- error, name string, args ...string) error {
	log, err := os.OpenFile(s.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(s.Bin, name), args...) //nolint:gosec,noctx // ended by cleanUp
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+s.Bin+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { ended <- fmt.Errorf("%s ended: %w, see %s", name, errors.Join(cmd.Wait()), log.Name()) }()
	return nil
}

func (s Spec) await(ctx context.Context, ended <-chan error, ready func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ready() != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-tick.C:
		}
	}
	return nil
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
