// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// timeout bounds a command. HAProxy normally answers at once.
	timeout = 5 * time.Second
	// limit bounds an answer, in bytes. It fits the statistics of about 5000 servers.
	limit = 2 << 20
	// mostServers bounds the servers of an answer.
	mostServers = 8192
)

// errForeign is returned if an endpoint does not speak HAProxy's runtime API.
var errForeign = errors.New("this is not HAProxy's runtime API: name its stats socket")

// endpoint is the address of the runtime API of one HAProxy process.
type endpoint struct{ network, address string }

// String returns the endpoint in the format of spec.haproxy.endpoints.
func (e endpoint) String() string { return e.network + "://" + e.address }

func parseEndpoint(s string) (endpoint, error) {
	network, address, _ := strings.Cut(s, "://")
	switch network {
	case "tcp":
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" {
			break
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return endpoint{}, fmt.Errorf("port %s is not from 1 to 65535", port)
		}
		return endpoint{network, address}, nil
	case "unix":
		if path.IsAbs(address) {
			return endpoint{network, address}, nil
		}
	}
	return endpoint{}, fmt.Errorf("%q must be like tcp://192.0.2.1:9999 or unix:///run/haproxy/admin.sock", s)
}

// servers returns the servers of all backends, without the fields that serversWithConnections adds.
func (e endpoint) servers(ctx context.Context) (servers []server, err error) {
	err = e.command(ctx, "show servers state", func(answer io.Reader) (err error) {
		servers, err = parseServers(answer)
		return err
	})
	return servers, err
}

// serversWithConnections returns the servers of all backends with their connections.
func (e endpoint) serversWithConnections(ctx context.Context) ([]server, error) {
	servers, err := e.servers(ctx)
	if err != nil {
		return nil, err
	}
	const command = "show stat -1 4 -1" // all backends, only servers
	if err := e.command(ctx, command, func(answer io.Reader) error { return count(servers, answer) }); err != nil {
		return nil, err
	}
	return servers, nil
}

// do runs a command whose answer is empty on success.
func (e endpoint) do(ctx context.Context, command string) error {
	return e.command(ctx, command, func(answer io.Reader) error {
		text, err := io.ReadAll(answer)
		if err != nil || len(bytes.TrimSpace(text)) == 0 {
			return err
		}
		return refusal(string(text), errors.New(quote(string(text))))
	})
}

// command sends a command on a new connection and passes the answer to read. Its errors name the process and the
// command.
func (e endpoint) command(ctx context.Context, command string, read func(io.Reader) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("HAProxy at %s: %q: %w", e, command, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, e.network, e.address)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be written
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	err = exchange(conn, command, read)
	if ended := ctx.Err(); ended != nil && err != nil {
		return ended // the cause of the connection's error
	}
	return err
}

// exchange sends the command and reads the answer. If the answer is incomplete, it returns the reason for that instead
// of the parser's error.
func exchange(conn net.Conn, command string, read func(io.Reader) error) error {
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return err
	}
	a := &answer{from: conn}
	err := read(a)
	if a.failed != nil && !errors.Is(err, errForeign) {
		return a.failed
	}
	return err
}

// answer is HAProxy's response to a command. A complete answer ends with an empty line and the end of the connection;
// Read returns an error for any other end.
type answer struct {
	from   io.Reader
	size   int
	end    [2]byte
	failed error
}

// Read implements io.Reader.
func (a *answer) Read(p []byte) (int, error) {
	if a.failed != nil {
		return 0, a.failed
	}
	n, err := a.from.Read(p)
	a.size += n
	for _, b := range p[max(0, n-len(a.end)):n] {
		a.end = [2]byte{a.end[1], b}
	}
	switch {
	case a.size > limit:
		a.failed = fmt.Errorf("answer is longer than %d bytes", limit)
		return 0, a.failed
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		a.failed = err
	case a.size == 0:
		a.failed = errors.New("no answer: if this is not HAProxy's runtime API, name its stats socket")
	case a.end != [2]byte{'\n', '\n'} && (a.size > 1 || a.end[1] != '\n'):
		a.failed = fmt.Errorf("answer was cut off after %d bytes", a.size)
	default:
		return n, io.EOF
	}
	return n, a.failed
}

// refusal returns an error with a remedy if HAProxy denied the permission, or else err.
func refusal(text string, err error) error {
	if strings.HasPrefix(strings.TrimSpace(text), "Permission denied") {
		return errors.New(`permission denied: the "stats socket" needs "level admin"`)
	}
	return err
}

// quote returns the first line of a text of HAProxy, quoted and cut to a printable length.
func quote(text string) string {
	const most = 100
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strconv.Quote(line[:min(most, len(line))])
}
