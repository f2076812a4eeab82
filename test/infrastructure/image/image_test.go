// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/image"
)

func TestWriteMakesAnArchiveWhoseDigestsHold(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "work")
	if err := os.WriteFile(binary, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := image.Write(&b, "example.com/work:1", binary); err != nil {
		t.Fatal(err)
	}
	files := read(t, &b)
	for name, content := range files {
		sum := sha256.Sum256(content)
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && want != hex.EncodeToString(sum[:]) {
			t.Errorf("blob %s has another digest", name)
		}
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != "example.com/work:1" {
		t.Errorf("containerd must find the name: %q", got)
	}
	if _, ok := files["blobs/sha256/"+strings.TrimPrefix(index.Manifests[0].Digest, "sha256:")]; !ok {
		t.Error("the manifest must be in the archive")
	}
}

func read(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}
