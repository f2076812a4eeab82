// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// clipped records events of whatever the controllers quote. The API server refuses
// one whose note is too long for good, and what programs and people wrote is shown
// on one line, without what nobody sees.
type clipped struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r clipped) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", clip.Note(fmt.Sprintf(note, args...)))
}
