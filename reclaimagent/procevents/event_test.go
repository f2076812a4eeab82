// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
)

func vectors(tb testing.TB) map[string][]byte {
	tb.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		tb.Skip("the recorded messages are little-endian")
	}
	raw, err := os.ReadFile("testdata/netlink.json")
	if err != nil {
		tb.Fatal(err)
	}
	var list []struct{ ID, Hex string }
	if err := json.Unmarshal(raw, &list); err != nil {
		tb.Fatal(err)
	}
	byID := map[string][]byte{}
	for _, v := range list {
		if byID[v.ID], err = hex.DecodeString(v.Hex); err != nil {
			tb.Fatal(err)
		}
	}
	return byID
}

func TestParseVectors(t *testing.T) {
	java := Event{Kind: Comm, PID: 4242, TGID: 4242}
	copy(java.comm[:], "java")
	cases := map[string]struct {
		reason string
		want   Event
		err    error
	}{
		"event-ack":       {"The kernel agrees.", Event{Kind: Ack}, nil},
		"event-exec-4242": {"A process runs a new program.", Event{Kind: Exec, PID: 4242, TGID: 4242}, nil},
		"event-comm":      {"A process has a new name.", java, nil},
		"event-truncated": {"Half a message is none.", Event{}, ErrMalformed},
	}
	recorded := vectors(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, rest, err := Parse(recorded[name])
			// The recorded timestamps are arbitrary.
			got.Time = 0
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(Event{})); diff != "" || !errors.Is(err, tc.err) || len(rest) != 0 {
				t.Errorf("%s\nParse(...), error %v, rest %x: -want, +got:\n%s", tc.reason, err, rest, diff)
			}
		})
	}
}

func TestRequestVector(t *testing.T) {
	if diff := cmp.Diff(vectors(t)["listen-frame"], request(opListen, 0)); diff != "" {
		t.Errorf("The kernel acknowledges this form only.\n-want, +got:\n%s", diff)
	}
}

func TestCommWithoutNUL(t *testing.T) {
	b := comm(1, 1, "0123456789abcdef")
	e, _, err := Parse(b)
	if err != nil || string(e.Comm()) != "0123456789abcdef" {
		t.Errorf("Comm() = %q, error %v", e.Comm(), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, b := range vectors(f) {
		f.Add(b)
	}
	f.Add(append(exec(1), comm(2, 2, "x")...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			e, rest, err := Parse(b)
			if err != nil {
				if !errors.Is(err, ErrMalformed) || len(rest) != 0 {
					t.Fatalf("error %v, rest %x", err, rest)
				}
				return
			}
			if len(rest) >= len(b) || !bytes.HasSuffix(b, rest) {
				t.Fatalf("rest %x of %x", rest, b)
			}
			if e.Kind > Comm || len(e.Comm()) > 16 {
				t.Fatalf("event %+v", e)
			}
			b = rest
		}
	})
}

func TestFilter(t *testing.T) {
	raw, err := filter(self)
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter does not disassemble")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		in     []byte
		want   bool
	}{
		"Ack":       {"The subscription waits for it.", message(whatAck, 1, 1, 0), true},
		"Exec":      {"A process runs a new program.", exec(5), true},
		"Rename":    {"A process with a new name may match.", comm(5, 5, "java"), true},
		"Thread":    {"A Java program names dozens of threads.", comm(6, 5, "GC Thread#1"), false},
		"OwnThread": {"This is our heartbeat.", comm(78, self, "agent"), true},
		"Fork":      {"A fork has no new name or arguments.", message(1, 0, 1, 5, 5), false},
		"Exit":      {"A process that ends does not match.", message(0x80000000, 0, 1, 5, 5), false},
		"Torn":      {"A message without its end.", exec(5)[:20], false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n, err := vm.Run(tc.in)
			if got := n > 0; got != tc.want || err != nil {
				t.Errorf("%s\nfilter passes %v, want %v (error %v)", tc.reason, got, tc.want, err)
			}
		})
	}
}
