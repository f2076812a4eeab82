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
	// timeout bounds a command. HAProxy answers at once, or not at all.
	timeout = 5 * time.Second
	// limit bounds an answer. Some 30000 servers are that long.
	limit = 16 << 20
)

// An endpoint is the address of the runtime API of a process.
type endpoint struct{ network, address string }

// String is as in the API.
func (e endpoint) String() string { return e.network + "://" + e.address }

func parseEndpoint(s string) (endpoint, error) {
	network, address, _ := strings.Cut(s, "://")
	switch network {
	case "tcp":
		host, port, err := net.SplitHostPort(address)
		if n, portErr := strconv.ParseUint(port, 10, 16); err == nil && portErr == nil && n > 0 && host != "" {
			return endpoint{network, address}, nil
		}
	case "unix":
		if path.IsAbs(address) {
			return endpoint{network, address}, nil
		}
	}
	return endpoint{}, fmt.Errorf("endpoint %q is neither tcp://host:port nor unix:///path", s)
}

// servers are the servers of all backends, without what counted adds.
func (e endpoint) servers(ctx context.Context) ([]server, error) {
	const command = "show servers state"
	answer, err := e.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	servers, err := parseServers(answer)
	if err != nil {
		return nil, e.failed(command, err)
	}
	return servers, nil
}

// counted are the servers of all backends with their connections.
func (e endpoint) counted(ctx context.Context) ([]server, error) {
	servers, err := e.servers(ctx)
	if err != nil {
		return nil, err
	}
	const command = "show stat -1 4 -1" // of all backends, of servers alone
	answer, err := e.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	if err := count(servers, answer); err != nil {
		return nil, e.failed(command, err)
	}
	return servers, nil
}

// do runs a command that has no answer if it succeeds.
func (e endpoint) do(ctx context.Context, command string) error {
	answer, err := e.ask(ctx, command)
	switch text := string(bytes.TrimSpace(answer)); {
	case err != nil:
		return err
	case text == "":
		return nil
	case strings.HasPrefix(text, "Permission denied"):
		return e.failed(command, errors.New(`permission denied: the "stats socket" needs "level admin"`))
	default:
		return e.failed(command, errors.New(quote(answer)))
	}
}

// ask sends a command on a connection of its own, and returns the answer. HAProxy ends
// every answer with an empty line, and then the connection: what does not end like that is
// not all.
func (e endpoint) ask(ctx context.Context, command string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, e.network, e.address)
	if err != nil {
		return nil, e.failed(command, err)
	}
	defer conn.Close() //nolint:errcheck // nothing is left to be written
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	answer, err := exchange(conn, command)
	if ended := ctx.Err(); ended != nil {
		err = ended // the cause of what the connection says
	}
	if err != nil {
		return nil, e.failed(command, err)
	}
	return answer, nil
}

func exchange(conn net.Conn, command string) ([]byte, error) {
	if _, err := io.WriteString(conn, command+"\n"); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, limit+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > limit:
		return nil, fmt.Errorf("answer is longer than %d bytes", limit)
	case string(answer) != "\n" && !bytes.HasSuffix(answer, []byte("\n\n")):
		return nil, fmt.Errorf("answer was cut off after %d bytes", len(answer))
	}
	return answer, nil
}

// failed names the process and the command.
func (e endpoint) failed(command string, err error) error {
	return fmt.Errorf("HAProxy at %s: %q: %w", e, command, err)
}

// quote is the first line of an answer, cut if it is long, fit to be printed.
func quote(answer []byte) string {
	const most = 200
	line, _, _ := bytes.Cut(bytes.TrimSpace(answer), []byte("\n"))
	if len(line) > most {
		line = line[:most]
	}
	return strconv.Quote(string(line))
}
