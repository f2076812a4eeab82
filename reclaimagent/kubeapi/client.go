// SPDX-License-Identifier: Apache-2.0

// Package kubeapi answers one question: how does the agent reach its API server?
// It is an HTTP client for the few requests of the agent. It does not know Nodes or
// ConfigMaps.
//
// It is not client-go because of its size, on a machine that belongs to another person. Measured for a client that
// sends one patch, binary and resident memory: net/http 5.6 and 8 MiB, client-go without clientset 13 and 17 MiB, with
// the typed clientset 25 and 24 MiB. The agent's goal is 12 MiB resident.
//
// A request that the server has not accepted is in memory only: the agent writes nothing on the owner's disk.
package kubeapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBody bounds the bytes that are read of a response. A Node with all its images has about 100 KiB, a ConfigMap
	// at most 1 MiB.
	maxBody = 8 << 20
	// maxErrorBody bounds the bytes that are read of an error response.
	maxErrorBody = 64 << 10
)

// Content types of patches, and the Accept header that requests only metadata, which omits a Node's list of images. A
// server that does not support it returns the whole object.
const (
	JSONPatch     = "application/json-patch+json"
	MergePatch    = "application/merge-patch+json"
	MetadataOnly  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	contentJSON   = "application/json"
	userAgentName = "5spot-reclaim-agent"
)

// StatusError is an error response of the API server.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is the server's message. It may be empty.
	Message string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("API server answers %d %s", e.Code, http.StatusText(e.Code))
	}
	return fmt.Sprintf("API server answers %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// Code returns the HTTP status of a [*StatusError] in err, zero if there is none.
func Code(err error) int {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Code
	}
	return 0
}

// Client sends requests to one API server. It is safe for concurrent use. It keeps its connection open, and does not
// limit the request rate.
type Client struct {
	base *url.URL
	// http returns the HTTP client that trusts the server. fresh reads the certificate authority again, because the
	// server was not trusted.
	http func(fresh bool) *http.Client
	// token returns the bearer token, nil if the requests have none. fresh reads it again, because the server rejected
	// the last one.
	token func(fresh bool) (string, error)
	// multiplexed means that the last response used HTTP/2.
	multiplexed atomic.Bool
}

// Multiplexed reports whether all requests share one connection, as with HTTP/2. An open stream then keeps the
// connection open for all.
func (c *Client) Multiplexed() bool { return c.multiplexed.Load() }

// Request is a request of a Client. An empty Method means GET, an empty Accept means JSON.
type Request struct {
	Method      string
	Path        string
	Query       url.Values
	ContentType string
	Accept      string
	Body        []byte
}

// Do sends r and decodes the response into target, which is a pointer, or nil to discard the response. The error is a
// [*StatusError] if the server rejects the request.
func (c *Client) Do(ctx context.Context, r Request, target any) error {
	body, err := c.Stream(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	defer drain(body)
	if target == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(target); err != nil {
		return fmt.Errorf("decoding answer of %s: %w", r.Path, err)
	}
	return nil
}

// Stream sends r and returns the body of the response. The caller must close it. It repeats a request once if the
// server rejected the token, or was not trusted: the token and the certificate authority of a service account are
// renewed on disk before the client reads the files again.
func (c *Client) Stream(ctx context.Context, r Request) (io.ReadCloser, error) {
	by := c.http(false)
	body, err := c.attempt(ctx, by, r, false)
	switch {
	case Code(err) == http.StatusUnauthorized && c.token != nil:
		return c.attempt(ctx, by, r, true)
	case untrusted(err):
		if renewed := c.http(true); renewed != by {
			return c.attempt(ctx, renewed, r, false)
		}
	}
	return body, err
}

func (c *Client) attempt(ctx context.Context, by *http.Client, r Request, fresh bool) (io.ReadCloser, error) {
	req, err := c.build(ctx, r, fresh)
	if err != nil {
		return nil, err
	}
	resp, err := by.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	c.multiplexed.Store(resp.ProtoMajor >= 2)
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer func() { _ = resp.Body.Close() }()
		return nil, refusal(resp)
	}
	return resp.Body, nil
}

func (c *Client) build(ctx context.Context, r Request, fresh bool) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.Path
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("building request: %w", err)
	}
	req.Header.Set("Accept", cmp.Or(r.Accept, contentJSON))
	req.Header.Set("User-Agent", userAgentName)
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	if c.token == nil {
		return req, nil
	}
	token, err := c.token(fresh)
	if err != nil {
		return nil, fmt.Errorf("reading token: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// refusal returns the error for a response: the message of a Status, or the start of the body.
func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a partial message is sufficient
	var status struct{ Message string }
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(raw[:min(len(raw), 200)]))
	}
	return &StatusError{Code: resp.StatusCode, Message: status.Message}
}

// drain reads the remaining body, so that the connection can be reused.
func drain(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxErrorBody)) }

// Timeouts of a silent connection. A watch keeps one connection open at all times. Over HTTP/2 the report uses the same
// connection, and pings detect a lost network within these times.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
	dialTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
)
