// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Import loads an image archive into the node in dir.
func Import(ctx context.Context, bin, dir, archive string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ctr"), "--address", filepath.Join(dir, containerdSocket), //nolint:gosec // our own program
		"--namespace", "k8s.io", "images", "import", "--local", archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s: %w: %s", archive, err, strings.TrimSpace(string(out)))
	}
	return nil
}
