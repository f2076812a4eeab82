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

// Bits of srv_admin_state, from "show servers state" in section 9.3 of HAProxy's management
// guide, https://docs.haproxy.org/2.6/management.html#9.3-show%20servers%20state. There are more of them:
// 0x04 says only that the configuration had "disabled", also after somebody enabled the
// server again, and 0x20 that its name does not resolve, which is nobody's wish.
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

// A place is a server of a backend.
type place struct{ backend, name string }

// A server is what one process says of a server.
type server struct {
	place
	// address is not valid for a server that has none, such as one whose name does not
	// resolve.
	address netip.Addr
	port    int32
	// operational, admin and weight are srv_op_state, srv_admin_state and srv_uweight.
	operational, admin, weight int

	// connections and backup are what counted adds. Connections are those that the server
	// has, and those that wait for it.
	connections int64
	backup      bool
}

// membership is the place of the machine that has the server's address.
func (s server) membership() balancer.Membership {
	return balancer.Membership{Pool: s.backend, Member: s.name, Port: s.port, Address: s.address.String(), Lasts: true}
}

// is reports whether the server is a place that was found before. A server whose name does not
// resolve now has no address: it is every place of its name, and gets no connections.
func (s server) is(m balancer.Membership) bool {
	if !s.address.IsValid() {
		return s.place == place{m.Pool, m.Member}
	}
	return s.membership().Same(m)
}

// disabled is in maintenance.
func (s server) disabled() bool { return s.admin&(forcedMaintenance|inheritedMaintenance) != 0 }

// forced is drained by command, as we do it.
func (s server) forced() bool { return s.admin&forcedDrain != 0 }

// draining is as HAProxy sees it: a weight of zero has the same effect.
func (s server) draining() bool {
	return s.forced() || s.admin&inheritedDrain != 0 || s.weight == 0
}

// serves gets new connections. A backup gets none as long as another server does.
func (s server) serves() bool {
	return (s.operational == starting || s.operational == running) && !s.disabled() && !s.draining() && !s.backup
}

// state is that of the server in this process: Draining also if it is drained and has no
// connections. One that has no weight, or tracks another that drains, is somebody else's to put
// back; the connections that it has end all the same. One without an address gets no connections.
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

// longestName bounds a name: what is taken is written down.
const longestName = 256

// isName says whether HAProxy takes a name for that of a backend or server. Everything that
// means something in a command, such as spaces, slashes and semicolons, is in no name.
func isName(s string) bool {
	return s != "" && len(s) <= longestName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(".:_-", r)
	})
}

// parseServers reads the answer to "show servers state".
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
	ended := false // The rest says whether the answer is all.
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
	s := server{place: place{row.text("be_name"), row.text("srv_name")}}
	if !isName(s.backend) || !isName(s.name) {
		return server{}, fmt.Errorf("server %s of backend %s: HAProxy has no such names", quote(s.name), quote(s.backend))
	}
	s.address, _ = netip.ParseAddr(row.text("srv_addr")) // "-" is none
	s.address = s.address.Unmap()
	s.operational = row.number("srv_op_state", 3)
	s.admin = row.number("srv_admin_state", 1<<15)
	s.weight = row.number("srv_uweight", 256)
	s.port = int32(row.number("srv_port", 65535)) //nolint:gosec // not more than 65535
	return s, row.err
}

// count adds what the answer to "show stat" says of each server. A server that it does not
// know has changed in between.
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
	of := make(map[place]*figures, len(servers))
	for _, s := range servers {
		of[s.place] = &figures{}
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
		f := of[s.place]
		if !f.found {
			return fmt.Errorf("there are no statistics of server %s/%s: HAProxy was changed while it was asked", s.backend, s.name)
		}
		servers[i].connections, servers[i].backup = f.connections, f.backup
	}
	return nil
}

// figures are what the statistics say of a server, if they do.
type figures struct {
	connections   int64
	backup, found bool
}

// count reads a row of the statistics, which counts if it is that of a server.
func (c columns) count(fields []string, of map[place]*figures) error {
	row, err := c.of(fields)
	if err != nil {
		return err
	}
	f := figures{int64(row.number("scur", 1<<30)) + int64(row.number("qcur", 1<<30)), row.number("bck", 1) == 1, true}
	if known := of[place{row.text("pxname"), row.text("svname")}]; known != nil {
		*known = f
	}
	return row.err
}

// columns is where a table has what we read: names of columns, and their places in a row.
type columns map[string]int

func findColumns(header []string, names ...string) (columns, error) {
	c := columns{}
	for _, name := range names {
		i := slices.Index(header, name)
		if i < 0 {
			return nil, fmt.Errorf("answer has no column %s: this is no HAProxy that we know", name)
		}
		c[name] = i
	}
	return c, nil
}

// of returns a row, which must have all columns.
func (c columns) of(fields []string) (*row, error) {
	for name, i := range c {
		if i >= len(fields) {
			return nil, fmt.Errorf("a row of the answer has no %s", name)
		}
	}
	return &row{columns: c, fields: fields}, nil
}

// A row is a line of a table. Its error is the first of its numbers that is none.
type row struct {
	columns columns
	fields  []string
	err     error
}

func (r *row) text(name string) string { return r.fields[r.columns[name]] }

// number is a column from zero to a limit.
func (r *row) number(name string, limit int) int {
	n, err := strconv.Atoi(r.text(name))
	if (err != nil || n < 0 || n > limit) && r.err == nil {
		r.err = fmt.Errorf("%s is %s, which is no number from 0 to %d", name, quote(r.text(name)), limit)
	}
	return n
}
