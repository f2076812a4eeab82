// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestTinyPrograms(t *testing.T) {
	c, err := tiny()
	if err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct {
		instructions []byte
		least        time.Duration
	}{
		"exit":  {c.exit, 0},
		"sleep": {c.sleeping(50 * time.Millisecond), 50 * time.Millisecond},
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := c.writeTiny(path, tc.instructions); err != nil {
			t.Fatal(err)
		}
		begun := monotonic()
		if err := exec.Command(path).Run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := monotonic() - begun; took < tc.least {
			t.Errorf("%s lived for %s, want %s", name, took, tc.least)
		}
	}
}

func TestJoinFindsTheRightOneOfAPID(t *testing.T) {
	starts := []start{{pid: 7, at: 100}, {pid: 8, at: 100}, {pid: 7, at: 5000}, {pid: 9, at: 6000}}
	seen := []sighting{
		{pid: 7, at: 50, latency: 1}, {pid: 7, at: 130, latency: 2}, // before, and the first
		{pid: 7, at: 5010, latency: 3}, {pid: 9, at: 9000, latency: 4}, // its pid again, and too late
	}
	f := join(starts, seen, 1000)
	if len(f.call) != 2 || f.call[0] != 30 || f.call[1] != 10 || f.event[0] != 2 || f.event[1] != 3 || f.lost != 2 {
		t.Errorf("found %+v, want one after 30 and one after 10, and two lost", f)
	}
	if l := f.losses("x"); l.Max != 2 || *l.Met {
		t.Errorf("%+v, want two losses, which miss the goal", l)
	}
}
