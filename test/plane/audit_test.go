// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestAnAuditLogIsReadToItsEndAndOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var log auditLog
	for i, more := range []struct {
		text string
		want int
	}{
		{"", 0},
		{`{"auditID":"0"}` + "\n" + `{"auditID":`, 1}, // The second is still being written.
		{"", 1},
		{`"1"}` + "\n" + `{"auditID":"2"}` + "\n", 3},
	} {
		if _, err := f.WriteString(more.text); err != nil {
			t.Fatal(err)
		}
		events, err := log.read(path)
		if err != nil || len(events) != more.want {
			t.Fatalf("%d: %d events, want %d: %v", i, len(events), more.want, err)
		}
		for n, e := range events {
			if string(e.AuditID) != strconv.Itoa(n) {
				t.Errorf("event %d is %s", n, e.AuditID)
			}
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if events, err := log.read(path); err != nil || len(events) != 3 {
		t.Errorf("what was read is read again: %d events, %v", len(events), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
