// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestEveryZoneLoads(t *testing.T) {
	t.Parallel()
	names := zoneNames(t)
	for _, name := range names {
		zone, err := parseZone(name)
		if err != nil {
			t.Errorf("parseZone(%q): %v", name, err)
		} else if zone.String() != name {
			t.Errorf("parseZone(%q) is called %v", name, zone)
		}
		if len(name) > MaxZoneBytes {
			t.Errorf("%s is longer than MaxZoneBytes", name)
		}
	}
	if len(names) < 400 {
		t.Errorf("the database has %d zones, want all of them", len(names))
	}
}

func TestZonesAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		name   string
		help   string
	}{
		"Empty":      {reason: "The default is the API's; here it is a mistake.", help: "IANA"},
		"Local":      {reason: "It would mean the zone of whichever host runs the manager.", name: "Local", help: "IANA"},
		"Path":       {reason: "A name is looked up, never opened.", name: "../etc/passwd", help: "IANA"},
		"LowerCase":  {reason: "Names are exact; say which one was meant.", name: "utc", help: "did you mean UTC?"},
		"OtherCase":  {reason: "A host without case in its file names would accept it.", name: "europe/zurich", help: "Europe/Zurich?"},
		"Directory":  {reason: "A region is not a zone.", name: "Europe", help: "IANA"},
		"Factory":    {reason: "It means that no zone was chosen.", name: "Factory", help: "IANA"},
		"Slash":      {reason: "Nor is it with a slash.", name: "Europe/", help: "IANA"},
		"WhiteSpace": {reason: "Only lists are trimmed.", name: "UTC ", help: "IANA"},
		"NUL":        {reason: "Other software would stop reading there.", name: "UTC\x00", help: "IANA"},
		"Rule":       {reason: "A POSIX rule is not a name.", name: "CET-1CEST,M3.5.0,M10.5.0/3", help: "IANA"},
		"Enormous":   {reason: "It is refused without a search, and repeated only in part.", name: strings.Repeat("UTC/", 1<<16), help: "IANA"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(Spec{Timezone: tc.name})
			var bad *FieldError
			if !errors.As(err, &bad) || bad.Field != "timezone" || !strings.Contains(bad.Help, tc.help) || len(bad.Error()) > 512 {
				t.Errorf("%s\nParse(%q): %v", tc.reason, clip(tc.name), err)
			}
		})
	}
}

// TestHostZoneDatabaseIsIgnored runs this test binary again on a host whose own database has Tokyo's time for Zurich.
func TestHostZoneDatabaseIsIgnored(t *testing.T) {
	const child = "SCHEDULE_TEST_CHILD"
	ask := func() string {
		s, err := Parse(Spec{DaysOfWeek: []string{"mon"}, HoursOfDay: []string{"9"}, Timezone: "Europe/Zurich"})
		if err != nil {
			return err.Error()
		}
		active, change := s.At(time.Date(2025, 7, 1, 0, 0, 0, 0, time.UTC))
		return fmt.Sprintln(active, change.Format(time.RFC3339))
	}
	if os.Getenv(child) != "" {
		host, err := time.LoadLocation("Europe/Zurich")
		fmt.Println("host:", time.Unix(0, 0).In(host).Format("15:04"), err)
		fmt.Println("we:", ask())
		return
	}
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := fs.ReadFile(archive, "Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "Europe"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Europe", "Zurich"), wrong, 0o600); err != nil {
		t.Fatal(err)
	}

	for name, zoneinfo := range map[string]string{"Wrong": dir, "Absent": "/does/not/exist"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHostZoneDatabaseIsIgnored$")
		cmd.Env = append(os.Environ(), child+"=1", "ZONEINFO="+zoneinfo, "TZ=Asia/Tokyo")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if name == "Wrong" && !bytes.Contains(out, []byte("host: 09:00 <nil>")) {
			t.Fatalf("the host was not misled, so this shows nothing:\n%s", out)
		}
		if !bytes.Contains(out, []byte("we: "+ask())) {
			t.Errorf("%s: with ZONEINFO=%s\n%swant %s", name, zoneinfo, out, ask())
		}
	}
}

// TestDatabaseIsGosOwn verifies a binary file that a reviewer cannot read in a diff.
func TestDatabaseIsGosOwn(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no go command to ask for its database: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "lib", "time")
	script, err := os.ReadFile(filepath.Join(dir, "update.bash"))
	if err != nil {
		t.Skipf("this Go comes without its database: %v", err)
	}
	if !bytes.Contains(script, []byte("\nDATA="+ZoneDatabase+"\n")) {
		t.Skipf("%s comes with another release than %s; go generate takes it over", runtime.Version(), ZoneDatabase)
	}
	theirs, err := os.ReadFile(filepath.Join(dir, "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	if zoneinfo != string(theirs) {
		t.Errorf("zoneinfo.zip is not the %s that comes with %s", ZoneDatabase, runtime.Version())
	}
}
