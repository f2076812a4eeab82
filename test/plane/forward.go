// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// forwarder makes the kubernetes Service of a cluster reachable from the pods of real nodes on this machine, instead of
// kube-proxy.
type forwarder struct {
	listener net.Listener
	address  string
	target   string
	stop     context.CancelFunc
	tasks    sync.WaitGroup
}

// The address has a lifetime that is renewed, so that the kernel removes it if this process is killed.
const (
	addressLifetime = "30"
	addressRenewal  = 10 * time.Second
)

// newForwarder adds the Service's address to the loopback interface and forwards its connections to target. It needs
// root.
func newForwarder(ctx context.Context, ip net.IP, target string) (*forwarder, error) {
	f := &forwarder{address: ip.String() + "/32", target: target}
	if err := f.addAddress(); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip.String(), "443"))
	if err != nil {
		return nil, errors.Join(err, f.removeAddress())
	}
	f.listener = l
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.tasks.Go(f.serve)
	f.tasks.Go(func() { f.keepAddress(running) })
	return f, nil
}

func (f *forwarder) addAddress() error {
	out, err := exec.Command("ip", "address", "replace", f.address, "dev", "lo", "valid_lft", addressLifetime, "preferred_lft", addressLifetime).CombinedOutput() //nolint:gosec,noctx // our own address
	if err != nil {
		return fmt.Errorf("adding the Service's address: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (f *forwarder) keepAddress(ctx context.Context) {
	tick := time.NewTicker(addressRenewal)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Two more attempts follow before it expires.
			_ = f.addAddress()
		}
	}
}

func (f *forwarder) serve() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		go pipe(in, f.target)
	}
}

func pipe(in net.Conn, target string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", target) //nolint:noctx // lives as long as the connection it serves
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	done := make(chan struct{}, 2)
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(d[0], d[1])
			done <- struct{}{}
		}()
	}
	<-done
}

func (f *forwarder) removeAddress() error {
	return exec.Command("ip", "address", "del", f.address, "dev", "lo").Run() //nolint:gosec,noctx // our own address
}

// close does nothing for a nil forwarder.
func (f *forwarder) close() error {
	if f == nil {
		return nil
	}
	f.stop()
	err := f.listener.Close()
	f.tasks.Wait()
	return errors.Join(err, f.removeAddress())
}
