// SPDX-License-Identifier: Apache-2.0

// Package image answers one question: how does one static binary become a
// container image, without a registry and without a builder?
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
)

// Media types of an OCI image layout.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Write writes an OCI archive with one image called ref, such as
// "example.com/agent:v1", whose only file is binary, at /<its name>, which is
// also its entry point.
func Write(w io.Writer, ref, binary string) error {
	content, err := os.ReadFile(binary) //nolint:gosec // the caller's file
	if err != nil {
		return fmt.Errorf("reading binary: %w", err)
	}
	file := path.Base(binary)
	layer, err := archive([]entry{{name: file, mode: 0o755, content: content}})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + file}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": describe(configType, config), "layers": []descriptor{describe(layerType, layer)},
	})
	if err != nil {
		return err
	}
	named := describe(manifestType, manifest)
	named.Annotations = map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": indexType, "manifests": []descriptor{named}})
	if err != nil {
		return err
	}
	all, err := archive([]entry{
		{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, content: index},
		blob(config), blob(manifest), blob(layer),
	})
	if err != nil {
		return err
	}
	_, err = w.Write(all)
	return err
}

type entry struct {
	name    string
	mode    int64
	content []byte
}

func blob(content []byte) entry {
	return entry{name: "blobs/sha256/" + digest(content)[len("sha256:"):], mode: 0o644, content: content}
}

func archive(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, fmt.Errorf("writing archive: %w", err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("writing archive: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("writing archive: %w", err)
	}
	return b.Bytes(), nil
}

func describe(mediaType string, content []byte) descriptor {
	return descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}
