// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// Fields whose last writer is shown, besides writer.Enabled.
var (
	specFields      = fieldpath.MakePathOrDie("spec")
	killSwitchField = fieldpath.MakePathOrDie("spec", "killSwitch")
	requestField    = fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.EmergencyReclaimAnnotation)
)

// writerText names the writer, and when it wrote.
func writerText(w *writer.Writer, now time.Time) string {
	if w.At == nil {
		return w.String()
	}
	return fmt.Sprintf("%s, which wrote last %s ago (%s)", w, duration.HumanDuration(now.Sub(w.At.Time)), w.At.UTC().Format(time.RFC3339))
}
