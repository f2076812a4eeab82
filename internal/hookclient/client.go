// SPDX-License-Identifier: Apache-2.0

// Package hookclient answers one question: what does an extension say to a Machine
// that is about to leave? It trusts neither the extension's speed nor its answer.
package hookclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	hooksv1 "github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/hooks/v1alpha1"
)

const (
	// Handler is the name of the handler that is called.
	Handler = "before-machine-delete"
	// maxAnswer bounds what is read of an answer, in bytes.
	maxAnswer = 1 << 20
	// defaultTimeout is that of the API, for an object that was not defaulted.
	defaultTimeout = 10 * time.Second
	httpsPort      = 443
)

// ErrRefused is the error of an extension that answered with a failure.
var ErrRefused = errors.New("extension reports a failure")

// Call asks an extension. Every error is one of the extension or of its
// registration: of the connection, the certificate, the time it took, the status or
// the form of the answer.
func Call(ctx context.Context, hook *v1alpha1.MachineDeletionHook, req *hooksv1.BeforeMachineDeleteRequest) (*hooksv1.BeforeMachineDeleteResponse, error) {
	timeout := time.Duration(hook.Spec.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address, err := addressOf(hook.Spec.ClientConfig)
	if err != nil {
		return nil, err
	}
	client, err := clientFor(hook.Spec.ClientConfig)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
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
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("extension answers with HTTP status %d", answer.StatusCode)
	}
	return read(io.LimitReader(answer.Body, maxAnswer))
}

// read checks the form of an answer.
func read(body io.Reader) (*hooksv1.BeforeMachineDeleteResponse, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("reading answer: %w", err)
	}
	response := &hooksv1.BeforeMachineDeleteResponse{}
	if err := json.Unmarshal(text, response); err != nil {
		return nil, fmt.Errorf("reading answer: %w", err)
	}
	switch {
	case response.Status == runtimehooksv1.ResponseStatusFailure:
		return nil, fmt.Errorf("%w: %s", ErrRefused, response.Message)
	case response.Status != runtimehooksv1.ResponseStatusSuccess:
		return nil, fmt.Errorf("answer's status is %q, neither Success nor Failure", response.Status)
	case response.RetryAfterSeconds < 0:
		return nil, fmt.Errorf("answer's retryAfterSeconds is %d, below zero", response.RetryAfterSeconds)
	}
	return response, nil
}

// addressOf is where the hook is called.
func addressOf(c runtimev1.ClientConfig) (string, error) {
	if (c.URL != "") == c.Service.IsDefined() {
		return "", errors.New("spec.clientConfig: set either url or service")
	}
	base := &url.URL{Scheme: "https", Path: c.Service.Path}
	if c.Service.IsDefined() {
		port := int32(httpsPort)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		base.Host = net.JoinHostPort(c.Service.Name+"."+c.Service.Namespace+".svc", strconv.Itoa(int(port)))
	} else {
		var err error
		if base, err = url.Parse(c.URL); err != nil {
			return "", fmt.Errorf("spec.clientConfig.url: %w", err)
		}
		if base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
			return "", fmt.Errorf("spec.clientConfig.url: %q is no https URL of host and path alone", c.URL)
		}
	}
	catalog := runtimecatalog.New()
	if err := hooksv1.AddToCatalog(catalog); err != nil {
		return "", err
	}
	hook, err := catalog.GroupVersionHook(hooksv1.BeforeMachineDelete)
	if err != nil {
		return "", err
	}
	base.Path = path.Join("/", base.Path, runtimecatalog.GVHToPath(hook, Handler))
	return base.String(), nil
}

// clientFor trusts the certificates of the registration, or the system's if it has
// none, and follows no redirect: what is asked is for the one who was registered.
func clientFor(c runtimev1.ClientConfig) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CABundle) {
			return nil, errors.New("spec.clientConfig.caBundle: no certificate in it")
		}
	}
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
