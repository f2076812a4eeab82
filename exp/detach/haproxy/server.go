// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
)

// Bits of srv_admin_state, from "show servers state" in section 9.3 of HAProxy's management guide,
// https://docs.haproxy.org/2.6/management.html#9.3-show%20servers%20state. Other bits are ignored: 0x04 means only that
// the configuration has "disabled", also after the server was enabled at run time. 0x20 means that the server's name
// does not resolve.
const (
	forcedMaintenance    = 0x01
	inheritedMaintenance = 0x02
	forcedDrain          = 0x08
	inheritedDrain       = 0x10
)

// Values of srv_op_state with which a server gets new connections.
const (
	starting = 1
	running  = 2
)

// serverKey identifies a server by its backend and name.
type serverKey struct{ backend, name string }

// server is the state of a server in one process.
type server struct {
	serverKey
	// address is invalid if the server has none, for example because its name does not resolve.
	address netip.Addr
	port    int32
	// operational, admin and weight are srv_op_state, srv_admin_state and srv_uweight.
	operational, admin, weight int

	// connections and backup are set by serversWithConnections. connections is the number of open and of queued
	// connections.
	connections int64
	backup      bool
}

// membership returns the membership that the server represents.
func (s server) membership() balancer.Membership {
	return balancer.Membership{Pool: s.backend, Member: s.name, Port: s.port, Address: s.address.String(), Persistent: true}
}

// is reports whether the server is the recorded membership. A server whose name does not resolve has no address: it
// matches every membership with its backend and name, and gets no connections.
func (s server) is(m balancer.Membership) bool {
	if !s.address.IsValid() {
		return s.serverKey == serverKey{m.Pool, m.Member}
	}
	return s.membership().Same(m)
}

// disabled reports whether the server is in maintenance.
func (s server) disabled() bool { return s.admin&(forcedMaintenance|inheritedMaintenance) != 0 }

// forced reports whether a command drains the server, as Drain does.
func (s server) forced() bool { return s.admin&forcedDrain != 0 }

// draining reports whether HAProxy treats the server as draining. A weight of zero has the same effect.
func (s server) draining() bool {
	return s.forced() || s.admin&inheritedDrain != 0 || s.weight == 0
}

// serves reports whether the server gets new connections. A backup server gets none while another server is up.
func (s server) serves() bool {
	return (s.operational == starting || s.operational == running) && !s.disabled() && !s.draining() && !s.backup
}

// state returns the state of the server in this process. It is Draining also if a command drains the server and it has
// no connections. A server without weight, or one that tracks a draining server, is Draining while it has connections,
// and Disabled after that: 5-Spot must not restore it. A server without an address is Disabled, unless a command drains
// it.
func (s server) state() balancer.State {
	switch {
	case s.disabled():
		return balancer.Disabled
	case s.forced(), s.draining() && s.connections > 0:
		return balancer.Draining
	case s.draining(), !s.address.IsValid():
		return balancer.Disabled
	default:
		return balancer.Attached
	}
}

// maxName bounds the length of a name, because names of drained servers are recorded.
const maxName = 256

// isName reports whether HAProxy accepts the name for a backend or server. Such a name contains no character with a
// meaning in commands, such as a space, a slash or a semicolon.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(".:_-", r)
	})
}

// parseServers parses the answer to "show servers state".
func parseServers(answer io.Reader) ([]server, error) {
	lines := bufio.NewScanner(answer)
	if !lines.Scan() && lines.Err() != nil {
		return nil, lines.Err()
	}
	if lines.Text() != "1" {
		return nil, refusal(lines.Text(), fmt.Errorf("%w (it answers %s)", errForeign, quote(lines.Text())))
	}
	lines.Scan()
	columns, err := findColumns(strings.Fields(strings.TrimPrefix(lines.Text(), "#")),
		"be_name", "srv_name", "srv_addr", "srv_op_state", "srv_admin_state", "srv_uweight", "srv_port")
	if err != nil {
		return nil, err
	}
	var servers []server
	ended := false // Only an empty line at the end is valid.
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "":
			ended = true
			continue
		case ended:
			return nil, fmt.Errorf("answer goes on after its end: %s", quote(line))
		}
		s, err := parseServer(columns, lines.Text())
		if err != nil {
			return nil, err
		}
		if servers = append(servers, s); len(servers) > mostServers {
			return nil, fmt.Errorf("there are more than %d servers", mostServers)
		}
	}
	return servers, lines.Err()
}

func parseServer(columns columns, line string) (server, error) {
	row, err := columns.of(strings.Fields(line))
	if err != nil {
		return server{}, err
	}
	s := server{serverKey: serverKey{row.text("be_name"), row.text("srv_name")}}
	if !isName(s.backend) || !isName(s.name) {
		return server{}, fmt.Errorf("server %s of backend %s: HAProxy has no such names", quote(s.name), quote(s.backend))
	}
	s.address, _ = netip.ParseAddr(row.text("srv_addr")) // "-" means no address
	s.address = s.address.Unmap()
	s.operational = row.number("srv_op_state", 3)
	s.admin = row.number("srv_admin_state", 1<<15)
	s.weight = row.number("srv_uweight", 256)
	s.port = int32(row.number("srv_port", 65535)) //nolint:gosec // not more than 65535
	return s, row.err
}

// count adds the statistics of each server from the answer to "show stat". It returns an error if a server has none,
// because HAProxy's configuration has changed in between.
func count(servers []server, answer io.Reader) error {
	reader := csv.NewReader(answer)
	reader.FieldsPerRecord, reader.ReuseRecord = -1, true
	header, err := reader.Read()
	if err != nil || !strings.HasPrefix(header[0], "# ") {
		text := strings.Join(header, ",")
		return refusal(text, fmt.Errorf("answer is no statistics: %s", quote(text)))
	}
	header[0] = strings.TrimPrefix(header[0], "# ")
	columns, err := findColumns(header, "pxname", "svname", "qcur", "scur", "bck")
	if err != nil {
		return err
	}
	of := make(map[serverKey]*statistics, len(servers))
	for _, s := range servers {
		of[s.serverKey] = &statistics{}
	}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading statistics: %w", err)
		}
		if err := columns.count(fields, of); err != nil {
			return err
		}
	}
	for i, s := range servers {
		f := of[s.serverKey]
		if !f.found {
			return fmt.Errorf("there are no statistics of server %s/%s: HAProxy was changed while it was asked", s.backend, s.name)
		}
		servers[i].connections, servers[i].backup = f.connections, f.backup
	}
	return nil
}

// statistics are the connections and the role of a server. found means that the answer has them.
type statistics struct {
	connections   int64
	backup, found bool
}

// count reads a row of the statistics. It ignores rows of unknown servers.
func (c columns) count(fields []string, of map[serverKey]*statistics) error {
	row, err := c.of(fields)
	if err != nil {
		return err
	}
	f := statistics{int64(row.number("scur", 1<<30)) + int64(row.number("qcur", 1<<30)), row.number("bck", 1) == 1, true}
	if known := of[serverKey{row.text("pxname"), row.text("svname")}]; known != nil {
		*known = f
	}
	return row.err
}

// columns maps the name of each column that the Driver reads to its index in a row.
type columns map[string]int

func findColumns(header []string, names ...string) (columns, error) {
	c := columns{}
	for _, name := range names {
		i := slices.Index(header, name)
		if i < 0 {
			return nil, fmt.Errorf("answer has no column %s: this version of HAProxy is not supported", name)
		}
		c[name] = i
	}
	return c, nil
}

// of returns a row, or an error if it lacks a column.
func (c columns) of(fields []string) (*row, error) {
	for name, i := range c {
		if i >= len(fields) {
			return nil, fmt.Errorf("a row of the answer has no %s", name)
		}
	}
	return &row{columns: c, fields: fields}, nil
}

// row is a line of a table. err is the first error of number.
type row struct {
	columns columns
	fields  []string
	err     error
}

func (r *row) text(name string) string { return r.fields[r.columns[name]] }

// number returns a column as a number between zero and limit, and sets err if it is invalid.
func (r *row) number(name string, limit int) int {
	n, err := strconv.Atoi(r.text(name))
	if (err != nil || n < 0 || n > limit) && r.err == nil {
		r.err = fmt.Errorf("%s is %s, which is no number from 0 to %d", name, quote(r.text(name)), limit)
	}
	return n
}
