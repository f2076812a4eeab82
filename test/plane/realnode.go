// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/image"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/realnode"
)

// RealNodes says why PlaneMachines with the Real backend cannot run here, or nil.
// It is the reason for a test to skip.
func (p *Plane) RealNodes() error { return realnode.Supported(p.bin) }

// ImportImage makes an image called ref out of one static binary, its entry
// point, and gives it to all real nodes of the plane, present and future. Pods
// use it with imagePullPolicy Never.
func (p *Plane) ImportImage(ctx context.Context, ref, binary string) error {
	var b bytes.Buffer
	if err := image.Write(&b, ref, binary); err != nil {
		return fmt.Errorf("making image %s: %w", ref, err)
	}
	archive := filepath.Join(p.Dir, "images", strings.NewReplacer("/", "-", ":", "-").Replace(ref)+".tar")
	if err := os.MkdirAll(filepath.Dir(archive), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(archive, b.Bytes(), 0o600); err != nil {
		return err
	}
	nodes, err := filepath.Glob(filepath.Join(p.Dir, "nodes", "*"))
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := realnode.Import(ctx, p.bin, n, archive); err != nil {
			return err
		}
	}
	return nil
}

// PauseImage is an image that real nodes have from the start: it does nothing.
const PauseImage = "plane.local/pause:1"
