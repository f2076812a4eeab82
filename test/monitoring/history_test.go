// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// history is the data that Prometheus has scraped; the zero value is empty.
type history struct{ storage.Queryable }

// Querier implements storage.Queryable.
func (h *history) Querier(from, to int64) (storage.Querier, error) {
	if h.Queryable == nil {
		return storage.NoopQuerier(), nil
	}
	return h.Queryable.Querier(from, to)
}

// series is one line of an exposition.
type series struct {
	labels labels.Labels
	value  float64
	// grows reports that it belongs to a counter or a histogram.
	grows bool
	// at is when a counter jumps to its value, or the only time at which a gauge has it, relative to start; zero is
	// never.
	at time.Duration
}

// parse parses the exposition format. before has the types that text does not declare.
func parse(t *testing.T, text string, types map[string]model.MetricType) []series {
	t.Helper()
	var list []series
	p := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		switch entry {
		case textparse.EntryType:
			name, kind := p.Type()
			for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
				types[string(name)+suffix] = kind
			}
		case textparse.EntrySeries:
			s := series{}
			var millis *int64
			if _, millis, s.value = p.Series(); millis != nil {
				s.at = time.Duration(*millis) * time.Millisecond
			}
			p.Labels(&s.labels)
			kind := types[s.labels.Get(model.MetricNameLabel)]
			if kind == "" {
				t.Errorf("%s has no type", s.labels)
			}
			s.grows = kind == model.MetricTypeCounter || kind == model.MetricTypeHistogram
			list = append(list, s)
		default:
		}
	}
}

// seen is the value at a time relative to start.
func (s series) seen(at time.Duration) float64 {
	switch {
	case s.at > 0 && (at < s.at || !s.grows && at > s.at):
		return 0
	case s.at == 0 && s.grows:
		return s.value * float64(at+length) / float64(2*length)
	default:
		return s.value
	}
}

// record is a quiet fleet, scraped for length, with the changes of a fault.
func record(t *testing.T, fault string) *history {
	t.Helper()
	types := map[string]model.MetricType{}
	all := parse(t, read(t, "testdata/healthy.prom"), types)
	for _, s := range parse(t, fault+"\n", types) {
		found := false
		for i := range all {
			if labels.Equal(all[i].labels, s.labels) {
				all[i].value, all[i].at, found = s.value, s.at, true
			}
		}
		if !found {
			all = append(all, s)
		}
	}
	store := teststorage.New(t)
	t.Cleanup(func() { _ = store.Close() })
	app := store.Appender(t.Context())
	for at := -length; at <= length; at += scrape {
		for _, s := range all {
			if _, err := app.Append(0, s.labels, start.Add(at).UnixMilli(), s.seen(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return &history{store}
}
