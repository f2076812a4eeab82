// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// clipped shortens the notes of Events and puts them on one line without invisible characters. Notes may quote text of
// programs and people. The API server always rejects a note that is too long.
type clipped struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (r clipped) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", clip.Note(fmt.Sprintf(note, args...)))
}
