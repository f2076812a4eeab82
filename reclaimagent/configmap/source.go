// SPDX-License-Identifier: Apache-2.0

// Package configmap watches the ConfigMap of a Node and passes each new configuration to the agent.
package configmap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// pollInterval is the interval between reads if the server does not permit list or watch.
	pollInterval = 5 * time.Second

	// firstRetry and lastRetry bound the retry delay, before jitter.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second

	// watchDuration is the requested duration of a watch, before jitter. It bounds how long a broken watch stays
	// unnoticed.
	watchDuration = 5 * time.Minute

	// requestTimeout is the timeout of a request other than a watch.
	requestTimeout = 10 * time.Second
)

// Client is the part of the API client that a Source needs.
type Client interface {
	Do(ctx context.Context, r kubeapi.Request, into any) error
	Stream(ctx context.Context, r kubeapi.Request) (io.ReadCloser, error)
}

// Source watches the ConfigMap of one Node. It is not safe for concurrent use.
type Source struct {
	client Client
	name   string
	log    *slog.Logger
	apply  func(reclaim.Config)

	// text is the last text, by which applyText detects a change. known means that there was one.
	text  string
	known bool
	// failing is the last failure that was logged, "" for none.
	failing string
}

// New returns a Source for the Node. Run calls apply, from its goroutine, with every Config that differs from the
// previous one. If the ConfigMap does not exist or has no key, the Config has no patterns. A malformed one is logged
// and ignored.
func New(client Client, node string, log *slog.Logger, apply func(reclaim.Config)) *Source {
	return &Source{client: client, name: reclaim.ConfigMapName(node), log: log, apply: apply}
}

// Run watches the ConfigMap until ctx is done. While the server is not reachable, the last Config remains in force.
func (s *Source) Run(ctx context.Context) {
	backoff := retry.Backoff{First: firstRetry, Last: lastRetry}
	for ctx.Err() == nil {
		timer := time.AfterFunc(lastRetry, func() {})
		err := s.listAndWatch(ctx)
		if stable := !timer.Stop(); stable { // It lasted for lastRetry.
			backoff.Reset()
		}
		if ctx.Err() != nil {
			return
		}
		pause := backoff.Next()
		switch code := kubeapi.Code(err); {
		case err == nil:
			// The watch ended normally. The delay protects against a server that ends every watch at once.
		case code == http.StatusGone:
			// The resource version is too old: list again.
		case code != 0:
			s.logFailure(err)
			pause = retry.Jitter(pollInterval)
		default:
			s.logFailure(err)
		}
		_ = retry.Sleep(ctx, pause)
	}
}

// listAndWatch lists, and then watches until the watch ends. If the server rejects the list, it reads the ConfigMap
// once and returns the error.
func (s *Source) listAndWatch(ctx context.Context) error {
	version, err := s.list(ctx)
	if err != nil {
		if kubeapi.Code(err) == 0 {
			return err
		}
		text, getErr := s.get(ctx)
		if getErr == nil {
			s.applyText(text)
		}
		return errors.Join(err, getErr)
	}
	s.recovered()
	return s.watch(ctx, version)
}

// Get reads the ConfigMap once. If it does not exist or has no key, the Config has no patterns.
func (s *Source) Get(ctx context.Context) (reclaim.Config, error) {
	text, err := s.get(ctx)
	if err != nil {
		return reclaim.Config{}, err
	}
	return config.Parse([]byte(text))
}

// get returns the text of the Config, empty if the ConfigMap does not exist.
func (s *Source) get(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var found configMap
	err := s.client.Do(ctx, kubeapi.Request{Path: path + "/" + s.name}, &found)
	if err != nil && kubeapi.Code(err) != http.StatusNotFound {
		return "", fmt.Errorf("getting ConfigMap %s: %w", s.name, err)
	}
	return found.text(), nil
}

// applyText applies the text of a Config, unless it is unchanged.
func (s *Source) applyText(text string) {
	if s.known && text == s.text {
		return
	}
	s.text, s.known = text, true
	c, err := config.Parse([]byte(text))
	if err != nil {
		s.log.Error("Keeping the last good configuration", "ConfigMap", s.name, "err", err)
		return
	}
	s.apply(c)
}

// logFailure logs a failure, unless it is the same as the last one.
func (s *Source) logFailure(err error) {
	if err.Error() == s.failing {
		return
	}
	s.failing = err.Error()
	s.log.Warn("Following ConfigMap", "ConfigMap", s.name, "err", err)
}

// recovered logs the end of a failure that was logged.
func (s *Source) recovered() {
	if s.failing != "" {
		s.failing = ""
		s.log.Info("Following ConfigMap again", "ConfigMap", s.name)
	}
}
