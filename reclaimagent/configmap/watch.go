// SPDX-License-Identifier: Apache-2.0

package configmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
)

const path = "/api/v1/namespaces/" + reclaim.Namespace + "/configmaps"

type metadata struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
}

type configMap struct {
	Metadata metadata          `json:"metadata"`
	Data     map[string]string `json:"data"`
}

func (c configMap) text() string { return c.Data[reclaim.ConfigMapKey] }

type configMapList struct {
	Metadata metadata    `json:"metadata"`
	Items    []configMap `json:"items"`
}

// event is one line of a watch. Object is a ConfigMap, or a Status if Type is ERROR.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// selector selects the one ConfigMap, so that permission for that name is sufficient.
func (s *Source) selector() url.Values {
	return url.Values{"fieldSelector": {"metadata.name=" + s.name}}
}

// list reads the ConfigMap and returns the resource version to watch from.
func (s *Source) list(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var found configMapList
	if err := s.client.Do(ctx, kubeapi.Request{Path: path, Query: s.selector()}, &found); err != nil {
		return "", fmt.Errorf("listing ConfigMap %s: %w", s.name, err)
	}
	text := ""
	for _, c := range found.Items {
		if c.Metadata.Name == s.name { // A server may ignore the selector.
			text = c.text()
		}
	}
	s.applyText(text)
	return found.Metadata.ResourceVersion, nil
}

// watch applies changes until the server ends the watch, which is no error.
func (s *Source) watch(ctx context.Context, version string) error {
	// The server ends the watch. The timeout is for a server that does not.
	ctx, cancel := context.WithTimeout(ctx, 2*watchDuration)
	defer cancel()
	query := s.selector()
	query.Set("watch", "true")
	query.Set("resourceVersion", version)
	query.Set("timeoutSeconds", strconv.Itoa(int(watchDuration.Seconds())))
	stream, err := s.client.Stream(ctx, kubeapi.Request{Path: path, Query: query})
	if err != nil {
		return fmt.Errorf("watching ConfigMap %s: %w", s.name, err)
	}
	defer func() { _ = stream.Close() }()
	for decoder := json.NewDecoder(stream); ; {
		var e event
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watching ConfigMap %s: %w", s.name, err)
		}
		if err := s.handle(e); err != nil {
			return err
		}
	}
}

func (s *Source) handle(e event) error {
	if e.Type == "ERROR" {
		status := &kubeapi.StatusError{}
		_ = json.Unmarshal(e.Object, status)
		return fmt.Errorf("watching ConfigMap %s: %w", s.name, status)
	}
	var found configMap
	if err := json.Unmarshal(e.Object, &found); err != nil {
		return fmt.Errorf("watching ConfigMap %s: %w", s.name, err)
	}
	if found.Metadata.Name != s.name {
		return nil // a bookmark, or a server that ignores the selector
	}
	switch e.Type {
	case "ADDED", "MODIFIED":
		s.applyText(found.text())
	case "DELETED":
		s.applyText("")
	}
	return nil
}
