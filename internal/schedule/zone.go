// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"archive/zip"
	"cmp"
	_ "embed"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// ZoneDatabase is the embedded release of the IANA time zone database.
const ZoneDatabase = "2025c"

// MaxZoneBytes is the maximum length of a zone name. The longest existing name has 32 bytes. The API allows 64
// for future names.
const MaxZoneBytes = 64

// zoneinfo is carried in this package because time.LoadLocation searches, in this
// order, $ZONEINFO, the host, the Go installation, and only then time/tzdata.
// Two managers, and kubectl 5spot on a person's computer, must agree on when a window opens. New rules of a
// country need a new release of 5-Spot. The file, 400 KiB, is the one of Go, byte for byte, and a test compares it.
//
//go:generate cp $GOROOT/lib/time/zoneinfo.zip zoneinfo.zip
//go:embed zoneinfo.zip
var zoneinfo string

// unset is a name in the database for hosts without a configured zone. It is not a zone.
const unset = "Factory"

// database returns the files of the database, which are named after their zones.
var database = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
})

// zones caches the *time.Location of every zone that was used, by name. Loading a zone is slow, and one pointer
// per zone makes Schedules comparable.
var zones sync.Map

// parseZone returns the zone with that exact name from the embedded database.
func parseZone(name string) (*time.Location, error) {
	if zone, ok := zones.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if len(name) > MaxZoneBytes {
		return nil, zoneError(name, "")
	}
	files, err := database()
	if err != nil {
		return nil, zoneError(name, "reading the time zone database: "+err.Error())
	}
	data, err := fs.ReadFile(files, name)
	if err != nil || name == unset {
		return nil, zoneError(name, similar(name, files))
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, zoneError(name, err.Error())
	}
	shared, _ := zones.LoadOrStore(name, zone)
	return shared.(*time.Location), nil
}

// similar suggests a zone name that differs only in case.
func similar(name string, files *zip.Reader) string {
	for _, known := range files.File {
		if strings.EqualFold(known.Name, name) && known.Name != unset {
			return "did you mean " + known.Name + "?"
		}
	}
	return ""
}

func zoneError(name, help string) error {
	return &FieldError{
		Field: "timezone", Value: clip(name), Reason: "Invalid timezone: " + clip(name),
		Help: cmp.Or(help, "use a name of the IANA time zone database, such as UTC or Europe/Zurich"),
	}
}
