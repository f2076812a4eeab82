// SPDX-License-Identifier: Apache-2.0

// Package haproxy runs a real HAProxy for tests.
package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// A Process is HAProxy: a permanent master, and a worker that every reload replaces. Endpoints have the format of a
// LoadBalancer.
type Process struct {
	// Unix and TCP are its runtime API, with level admin.
	Unix, TCP string
	// ReadOnly is its runtime API with level operator.
	ReadOnly string

	*plane.Process
	dir     string
	ports   []int
	release func()
}

// patience bounds a start or a reload.
const patience = time.Minute

// maxPorts is how many ports a configuration can have.
const maxPorts = 16

// New returns a process that does not run yet. If HAProxy is not installed, the error is fs.ErrNotExist.
func New() (_ *Process, err error) {
	bin := filepath.Join(plane.DefaultBin(), "haproxy")
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("run `make plane-haproxy`: %w", err)
	}
	// A test's own directory is unsuitable: paths of sockets must be short.
	dir, err := os.MkdirTemp("", "haproxy-")
	if err != nil {
		return nil, err
	}
	free, release, err := plane.Ports(1 + maxPorts)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &Process{
		Unix:     "unix://" + filepath.Join(dir, "admin.sock"),
		TCP:      fmt.Sprintf("tcp://127.0.0.1:%d", free[0]),
		ReadOnly: "unix://" + filepath.Join(dir, "operator.sock"),
		dir:      dir, ports: free[1:], release: release,
	}
	p.Process = plane.NewProcess(dir, "haproxy", bin, []string{"-W", "-S", p.master(), "-f", p.file()}, nil, func(ctx context.Context) error {
		_, err := p.worker(ctx)
		return err
	})
	return p, nil
}

// Port is the i-th of the ports that its frontends can have, beginning with zero.
func (p *Process) Port(i int) int { return p.ports[i] }

func (p *Process) file() string { return filepath.Join(p.dir, "haproxy.cfg") }

func (p *Process) master() string { return filepath.Join(p.dir, "master.sock") }

// write writes the configuration: config, and the runtime API.
func (p *Process) write(config string) error {
	var global strings.Builder
	global.WriteString("global\n")
	for endpoint, level := range map[string]string{p.Unix: "admin", p.TCP: "admin", p.ReadOnly: "operator"} {
		_, address, _ := strings.Cut(endpoint, "://")
		fmt.Fprintf(&global, "  stats socket %s level %s expose-fd listeners\n", address, level)
	}
	return os.WriteFile(p.file(), []byte(global.String()+config), 0o600)
}

// Start runs it with a configuration without the section "global", and returns when it is
// ready.
func (p *Process) Start(ctx context.Context, config string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.write(config); err != nil {
		return err
	}
	return p.Process.Start(ctx)
}

// Reload replaces the worker by one with another configuration, and returns when it is ready. The old worker keeps its
// connections.
func (p *Process) Reload(ctx context.Context, config string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.write(config); err != nil {
		return err
	}
	old, err := p.worker(ctx)
	if err != nil {
		return err
	}
	// The master re-executes itself, and may close the connection before it answers.
	if _, err := sendCommand(ctx, p.master(), "reload"); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	err = await.Until(ctx, func(ctx context.Context) error {
		switch now, err := p.worker(ctx); {
		case err != nil:
			return err
		case now == old:
			return errors.New("the old worker answers")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reloading HAProxy: %w\n%s", err, p.LogTail(20))
	}
	return nil
}

// worker returns the process ID of the worker that answers. The master must answer as well: a worker can be ready while
// its master still ignores commands.
func (p *Process) worker(ctx context.Context) (string, error) {
	if _, err := sendCommand(ctx, p.master(), "show proc"); err != nil {
		return "", err
	}
	info, err := p.Command(ctx, "show info")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if pid, found := strings.CutPrefix(line, "Pid: "); found {
			return strings.TrimSpace(pid), nil
		}
	}
	return "", fmt.Errorf("HAProxy does not say who it is: %q", info)
}

// Command runs a command of the runtime API.
func (p *Process) Command(ctx context.Context, command string) (string, error) {
	return sendCommand(ctx, strings.TrimPrefix(p.Unix, "unix://"), command)
}

// sendCommand sends a single command and half-closes the socket: the master would wait for another.
func sendCommand(ctx context.Context, socket, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be written
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return "", err
	}
	if err := conn.CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// Stop stops HAProxy, and removes its files.
func (p *Process) Stop() error {
	err := errors.Join(p.Process.Stop(), os.RemoveAll(p.dir))
	p.release()
	return err
}
