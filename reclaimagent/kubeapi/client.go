// SPDX-License-Identifier: Apache-2.0

// Package kubeapi answers one question: how does the agent reach its API server?
// It is a REST client of the few things the agent does. It knows nothing about
// nodes or ConfigMaps. Why it is not client-go: docs/adr/0010.
package kubeapi

import (
	"bytes"
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
	// maxBody bounds what is read of an answer, against a server that never
	// ends. A Node with all its images has some 100 KiB, a ConfigMap at most 1 MiB.
	maxBody = 8 << 20
	// maxErrorBody bounds what is read of a refusal.
	maxErrorBody = 64 << 10
)

// Content types of patches, and the one that asks for metadata alone, which
// spares the agent a Node's list of images. A server that does not know it
// answers with the whole object.
const (
	JSONPatch     = "application/json-patch+json"
	MergePatch    = "application/merge-patch+json"
	MetadataOnly  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	contentJSON   = "application/json"
	userAgentName = "5spot-reclaim-agent"
)

// A StatusError is a refusal of the API server.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Message is what the server says about it, perhaps nothing.
	Message string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("API server answers %d %s", e.Code, http.StatusText(e.Code))
	}
	return fmt.Sprintf("API server answers %d %s: %s", e.Code, http.StatusText(e.Code), e.Message)
}

// Code returns the HTTP status with which the API server refused, zero if err is
// nothing of the kind.
func Code(err error) int {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.Code
	}
	return 0
}

// A TokenSource gives the bearer token of the next request, "" for none. Fresh
// asks for one that was not given before, because the last was refused.
type TokenSource interface {
	Token(fresh bool) (string, error)
}

// A Client talks to one API server. Any number of goroutines may use it. It
// keeps its connection open, and has no limit of its own on requests.
type Client struct {
	base  *url.URL
	trust *trust
	token TokenSource
	// one says that the last answer came over HTTP/2.
	one atomic.Bool
}

// Multiplexed reports whether all requests share one connection, as HTTP/2 has
// it, so that an open stream keeps it warm for the others.
func (c *Client) Multiplexed() bool { return c.one.Load() }

// A Request is what a Client sends. The zero Method is GET, the zero Accept JSON.
type Request struct {
	Method      string
	Path        string
	Query       url.Values
	ContentType string
	Accept      string
	Body        []byte
}

// Do sends r and decodes the answer into the value that into points to, unless
// it is nil. A refusal is a [*StatusError].
func (c *Client) Do(ctx context.Context, r Request, into any) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	defer drain(resp.Body)
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(into); err != nil {
		return fmt.Errorf("decoding answer of %s: %w", r.Path, err)
	}
	return nil
}

// Stream sends r and returns the answer as it comes. The caller closes it.
func (c *Client) Stream(ctx context.Context, r Request) (io.ReadCloser, error) {
	resp, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// send repeats a request once when its token was refused, or its server was not
// trusted: a service account's token and certificate authority are renewed on disk
// long before the files are read again.
func (c *Client) send(ctx context.Context, r Request) (*http.Response, error) {
	by := c.trust.current(false)
	resp, err := c.attempt(ctx, by, r, false)
	switch {
	case Code(err) == http.StatusUnauthorized && c.token != nil:
		return c.attempt(ctx, by, r, true)
	case untrusted(err):
		if renewed := c.trust.current(true); renewed != by {
			return c.attempt(ctx, renewed, r, false)
		}
	}
	return resp, err
}

func (c *Client) attempt(ctx context.Context, by *http.Client, r Request, fresh bool) (*http.Response, error) {
	req, err := c.build(ctx, r, fresh)
	if err != nil {
		return nil, err
	}
	resp, err := by.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reaching API server: %w", err)
	}
	c.one.Store(resp.ProtoMajor >= 2)
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer func() { _ = resp.Body.Close() }()
		return nil, refusal(resp)
	}
	return resp, nil
}

func (c *Client) build(ctx context.Context, r Request, fresh bool) (*http.Request, error) {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + r.Path
	u.RawQuery = r.Query.Encode()
	method, accept := r.Method, r.Accept
	if method == "" {
		method = http.MethodGet
	}
	if accept == "" {
		accept = contentJSON
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("building request: %w", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", userAgentName)
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}
	if c.token == nil {
		return req, nil
	}
	token, err := c.token.Token(fresh)
	if err != nil {
		return nil, fmt.Errorf("reading token: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// refusal reads a Status, or the text that takes its place.
func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // half a reason is better than none
	var status struct{ Message string }
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		status.Message = strings.TrimSpace(string(raw[:min(len(raw), 200)]))
	}
	return &StatusError{Code: resp.StatusCode, Message: status.Message}
}

// drain reads what is left, so that the connection can be used again.
func drain(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxErrorBody)) }

// Times after which a connection that says nothing is given up. The watch keeps
// one open at all times; over HTTP/2 the report shares it, and pings find out
// within these that the network is gone.
const (
	pingAfter   = 15 * time.Second
	pingTimeout = 5 * time.Second
	dialTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
)
