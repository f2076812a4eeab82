// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
)

// Import loads an image archive into the node in dir. It does nothing if the node has no containerd: one that starts
// imports all archives itself, and one that stops needs none.
func Import(ctx context.Context, bin, dir, archive string) error {
	socket := filepath.Join(dir, containerdSocket)
	return await.Until(ctx, func(ctx context.Context) error {
		if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", "--local", archive) //nolint:gosec // our own program
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", archive, err, strings.TrimSpace(string(out)))
		}
		return nil
	})
}
