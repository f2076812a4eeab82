// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
)

// forwarder makes the kubernetes Service of a cluster reachable from the pods of
// real nodes on this machine. It stands in for kube-proxy.
type forwarder struct {
	listener net.Listener
	address  string
	target   string
	conns    sync.WaitGroup
}

// newForwarder gives the loopback interface the Service's address and passes
// what arrives there on to target. That needs root.
func newForwarder(ctx context.Context, ip net.IP, target string) (*forwarder, error) {
	f := &forwarder{address: ip.String() + "/32", target: target}
	if out, err := exec.CommandContext(ctx, "ip", "address", "replace", f.address, "dev", "lo").CombinedOutput(); err != nil { //nolint:gosec // our own address
		return nil, errors.New("adding the Service's address: " + strings.TrimSpace(string(out)) + ": " + err.Error())
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip.String(), "443"))
	if err != nil {
		return nil, errors.Join(err, f.removeAddress())
	}
	f.listener = l
	f.conns.Go(f.serve)
	return f, nil
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

// close is a success for a forwarder that was never made.
func (f *forwarder) close() error {
	if f == nil {
		return nil
	}
	err := f.listener.Close()
	f.conns.Wait()
	return errors.Join(err, f.removeAddress())
}
