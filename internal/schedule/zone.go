// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// ZoneDatabase is the release of the IANA time zone database that is linked in.
const ZoneDatabase = "2025c"

// MaxZoneBytes bounds the name of a zone. The longest has 32 bytes; the API
// allows 64 for names to come.
const MaxZoneBytes = 64

// zoneinfo is carried in this package because time.LoadLocation asks, in this
// order, $ZONEINFO, the host, the Go installation, and only then time/tzdata.
// Two managers must agree on when a window opens, whatever their hosts believe.
// The file is the one that comes with Go, byte for byte, and a test compares it.
//
//go:generate cp $GOROOT/lib/time/zoneinfo.zip zoneinfo.zip
//go:embed zoneinfo.zip
var zoneinfo string

// unset is in the database for hosts on which nobody has chosen a zone. It is no zone.
const unset = "Factory"

// zoneFiles finds a zone by its exact name.
var zoneFiles = sync.OnceValues(func() (map[string]*zip.File, error) {
	archive, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return nil, fmt.Errorf("reading the time zone database: %w", err)
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		if f.Name != unset {
			files[f.Name] = f
		}
	}
	return files, nil
})

// zones holds the *time.Location of every zone used so far, by name: loading one
// is slow next to asking it, and one pointer per zone makes Schedules comparable.
var zones sync.Map

// parseZone returns the zone of that exact name in the database that is linked in.
func parseZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if len(name) > MaxZoneBytes {
		return nil, zoneError(name, "")
	}
	files, err := zoneFiles()
	if err != nil {
		return nil, zoneError(name, err.Error())
	}
	file, ok := files[name]
	if !ok {
		return nil, zoneError(name, similar(name, files))
	}
	zone, err := load(file)
	if err != nil {
		return nil, zoneError(name, err.Error())
	}
	shared, _ := zones.LoadOrStore(name, zone)
	return shared.(*time.Location), nil
}

func load(file *zip.File) (*time.Location, error) {
	r, err := file.Open()
	if err != nil {
		return nil, fmt.Errorf("opening: %w", err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

// similar names the zone that was probably meant, for the commonest mistake.
func similar(name string, files map[string]*zip.File) string {
	for known := range files {
		if strings.EqualFold(known, name) {
			return "did you mean " + known + "?"
		}
	}
	return ""
}

func zoneError(name, help string) error {
	if help == "" {
		help = "use a name of the IANA time zone database, such as UTC or Europe/Zurich"
	}
	return &FieldError{Field: "timezone", Value: clip(name), Reason: "Invalid timezone: " + clip(name), Help: help}
}
