// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"net/http"
	"testing"
	"time"
)

// SampleClock sends a response of an API server with this time through the transport of an API clock.
func SampleClock(ctx context.Context, t *testing.T, transport func(http.RoundTripper) http.RoundTripper, at time.Time) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://lab.test/api", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport(datedResponse(at)).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// datedResponse is a transport whose responses have this time.
type datedResponse time.Time

func (d datedResponse) RoundTrip(*http.Request) (*http.Response, error) {
	date := time.Time(d).UTC().Format(http.TimeFormat)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {date}}, Body: http.NoBody}, nil
}
