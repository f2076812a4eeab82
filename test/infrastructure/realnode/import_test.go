// SPDX-License-Identifier: Apache-2.0

package realnode

import "testing"

// TestImportIntoAStoppedNode: a test loads an image into all nodes while the node of another test stops.
func TestImportIntoAStoppedNode(t *testing.T) {
	t.Parallel()
	if err := Import(t.Context(), "/does/not/exist", t.TempDir(), "image.tar"); err != nil {
		t.Error(err)
	}
}
