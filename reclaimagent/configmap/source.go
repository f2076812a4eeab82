// SPDX-License-Identifier: Apache-2.0

// Package configmap answers one question: what does the ConfigMap of this node
// ask for now? It knows nothing about processes or reports.
package configmap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

const (
	// pollEvery is how often the ConfigMap is read where it may not be watched.
	pollEvery = 5 * time.Second

	// firstRetry and lastRetry bound the time between two tries to reach the
	// server, before jitter.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second

	// watchFor is how long the server is asked to keep a watch open, before
	// jitter. It ends those whose end was not noticed.
	watchFor = 5 * time.Minute

	// requestTimeout bounds one request that is no watch.
	requestTimeout = 10 * time.Second
)

// Client is what a Source needs of an API server.
type Client interface {
	Do(ctx context.Context, r kubeapi.Request, into any) error
	Stream(ctx context.Context, r kubeapi.Request) (io.ReadCloser, error)
}

// A Source follows the ConfigMap of one node. It belongs to one goroutine.
type Source struct {
	client Client
	name   string
	log    *slog.Logger
	apply  func(reclaim.Config)

	// text is the last that was seen, to tell a change from an echo; known says
	// whether there was any.
	text  string
	known bool
	// failing is the last failure that was logged, "" for none.
	failing string
}

// New returns a Source for the node. It calls apply, from the goroutine of Run,
// with every Config that differs from the one before: the inert one when the
// ConfigMap is absent, deleted or without the key. A malformed one is logged and
// changes nothing.
func New(client Client, node string, log *slog.Logger, apply func(reclaim.Config)) *Source {
	return &Source{client: client, name: reclaim.ConfigMapName(node), log: log, apply: apply}
}

// Run follows the ConfigMap until ctx is done. While the server cannot be
// reached, the last Config stays.
func (s *Source) Run(ctx context.Context) {
	backoff := retry.Backoff{First: firstRetry, Last: lastRetry}
	for ctx.Err() == nil {
		// One that lasted was no failure to begin with.
		var lasted atomic.Bool
		timer := time.AfterFunc(lastRetry, func() { lasted.Store(true) })
		err := s.follow(ctx)
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		if lasted.Load() {
			backoff.Reset()
		}
		pause := backoff.Next()
		switch code := kubeapi.Code(err); {
		case err == nil:
			// A watch that ended in order. The pause guards against a server
			// that ends them all at once.
		case code == http.StatusGone:
			// What was to be watched from is too old: list again.
		case code != 0:
			s.complain(err)
			pause = retry.Jitter(pollEvery)
		default:
			s.complain(err)
		}
		_ = retry.Sleep(ctx, pause)
	}
}

// follow lists and then watches until the watch ends. Where listing is refused
// it reads the one ConfigMap instead.
func (s *Source) follow(ctx context.Context) error {
	version, err := s.list(ctx)
	if err != nil {
		if kubeapi.Code(err) == 0 {
			return err
		}
		found, getErr := s.get(ctx)
		if getErr != nil {
			return errors.Join(err, getErr)
		}
		s.see(found)
		return err
	}
	s.recovered()
	return s.watch(ctx, version)
}

// Get reads the ConfigMap once. Absent, or without the key, it is inert.
func (s *Source) Get(ctx context.Context) (reclaim.Config, error) {
	found, err := s.get(ctx)
	if err != nil || found == nil {
		return reclaim.Config{}, err
	}
	return config.Parse([]byte(found.Data[reclaim.ConfigMapKey]))
}

// get returns nil for a ConfigMap that is absent.
func (s *Source) get(ctx context.Context) (*configMap, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found := &configMap{}
	err := s.client.Do(ctx, kubeapi.Request{Path: path + "/" + s.name}, found)
	if kubeapi.Code(err) == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting ConfigMap %s: %w", s.name, err)
	}
	return found, nil
}

// see takes note of the ConfigMap, nil if it is absent.
func (s *Source) see(found *configMap) {
	text := ""
	if found != nil {
		text = found.Data[reclaim.ConfigMapKey]
	}
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

// complain logs a failure once for as long as it stays the same.
func (s *Source) complain(err error) {
	if err.Error() == s.failing {
		return
	}
	s.failing = err.Error()
	s.log.Warn("Following ConfigMap", "ConfigMap", s.name, "err", err)
}

// recovered says that a failure that was logged is over.
func (s *Source) recovered() {
	if s.failing != "" {
		s.failing = ""
		s.log.Info("Following ConfigMap again", "ConfigMap", s.name)
	}
}
