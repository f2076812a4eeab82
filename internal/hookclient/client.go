// SPDX-License-Identifier: Apache-2.0

// Package hookclient calls extensions before a Machine leaves. It sends a BeforeMachineDeleteRequest over HTTPS
// to the endpoint of a MachineDeletionHook and returns the validated response. Every call has a timeout, and
// the size of a response is limited.
package hookclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

const (
	// Handler is the name of the handler that is called.
	Handler = "before-machine-delete"
	// maxAnswer is the maximum size of a response in bytes: six times the maximum of a condition message.
	// Many calls may be open.
	maxAnswer = 1 << 16
	// maxQuoted is the maximum size of a quoted message in bytes. Several extensions share a condition, and the
	// messages for a thousand Machines are in memory.
	maxQuoted = 1 << 10
	// defaultTimeout is the default of the API, for an object without defaults.
	defaultTimeout = 10 * time.Second
	httpsPort      = 443
)

// ErrRefused is the error for a response with status Failure.
var ErrRefused = errors.New("extension reports a failure")

// Call sends one request to an extension. Every error is about the extension or its registration: the
// connection, the certificate, the timeout, the HTTP status or the response. The same failure always has the
// same text.
func (c *Client) Call(ctx context.Context, hook *v1alpha1.MachineDeletionHook, req *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error) {
	timeout := Timeout(hook)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address, err := addressOf(hook.Spec.ClientConfig)
	if err != nil {
		return nil, err
	}
	client, err := c.clientFor(hook)
	if err != nil {
		return nil, err
	}
	req = req.DeepCopy()
	req.SetGroupVersionKind(hooksv1.GroupVersion.WithKind("BeforeMachineDeleteRequest"))
	req.SetSettings(hook.Spec.Settings)
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("writing request: %w", err)
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(post)
	if err != nil {
		return nil, explain(err, timeout)
	}
	defer func() { _ = answer.Body.Close() }()
	var text []byte
	if answer.StatusCode == http.StatusOK {
		text, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	}
	if err == nil {
		err = ctx.Err() // A server may answer a canceled request with an empty body.
	}
	if err != nil {
		return nil, explain(err, timeout)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("extension answers with HTTP status %d", answer.StatusCode)
	}
	return read(text)
}

// Timeout returns the timeout of one call of an extension.
func Timeout(hook *v1alpha1.MachineDeletionHook) time.Duration {
	if hook.Spec.TimeoutSeconds <= 0 {
		return defaultTimeout
	}
	return time.Duration(hook.Spec.TimeoutSeconds) * time.Second
}

// read parses and validates a response. Its message is reduced to one line of limited length.
func read(text []byte) (*hooksv1.BeforeMachineDeleteResponse, error) {
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("answer has more than %d bytes", maxAnswer)
	}
	response := &hooksv1.BeforeMachineDeleteResponse{}
	if err := json.Unmarshal(text, response); err != nil {
		return nil, failure{"answer is not a BeforeMachineDeleteResponse in JSON", err}
	}
	response.Message = quote(response.Message)
	switch {
	case response.Status == runtimehooksv1.ResponseStatusFailure:
		return nil, fmt.Errorf("%w: %s", ErrRefused, response.Message)
	case response.Status != runtimehooksv1.ResponseStatusSuccess:
		return nil, fmt.Errorf("answer's status is %q, neither Success nor Failure", quote(string(response.Status)))
	case response.RetryAfterSeconds < 0:
		return nil, fmt.Errorf("answer's retryAfterSeconds is %d, must not be negative", response.RetryAfterSeconds)
	}
	return response, nil
}

// quote returns a message on one line: it must not look like the message of another extension.
func quote(s string) string { return clip.To(clip.Line(s), maxQuoted) }

// addressOf returns the URL of the handler.
func addressOf(c runtimev1.ClientConfig) (string, error) {
	if (c.URL != "") == c.Service.IsDefined() {
		return "", errors.New("spec.clientConfig: set either url or service")
	}
	base := &url.URL{Scheme: "https", Path: c.Service.Path}
	if c.Service.IsDefined() {
		port := strconv.Itoa(int(ptr.Deref(c.Service.Port, httpsPort)))
		base.Host = net.JoinHostPort(c.Service.Name+"."+c.Service.Namespace+".svc", port)
	} else {
		var err error
		if base, err = url.Parse(c.URL); err != nil {
			return "", fmt.Errorf("spec.clientConfig.url: %w", err)
		}
		if base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
			return "", fmt.Errorf("spec.clientConfig.url: %q is not an https URL with only a host and a path", c.URL)
		}
	}
	hook := runtimecatalog.GroupVersionHook{Group: hooksv1.GroupVersion.Group, Version: hooksv1.GroupVersion.Version, Hook: "BeforeMachineDelete"}
	base.Path = path.Join("/", base.Path, runtimecatalog.GVHToPath(hook, Handler))
	return base.String(), nil
}
