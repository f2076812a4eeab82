// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxReason is how many characters of a reason are kept: a pattern has at most as many.
const maxReason = 256

// A Request is what is written on a Node about its owner's request.
type Request struct {
	// Node is its name.
	Node string
	// Asks says that the Node asks for its owner. Marked says that it has the annotation
	// for it, and Trigger is its value.
	Asks, Marked bool
	Trigger      string
	// Reason and RequestedAt are what else is written, empty if it is not.
	Reason, RequestedAt string
}

// ScreenRequest returns what of a request is rejected. Only the trigger decides whether the
// owner asks: of what else is wrong nothing is believed, and the request is served.
func ScreenRequest(r Request) []Rejection {
	var rejected []Rejection
	note := func(field, format string, args ...any) {
		rejected = append(rejected, Rejection{Annotation, fmt.Sprintf("Node %s: annotation %s ", r.Node, field) + fmt.Sprintf(format, args...)})
	}
	if r.Marked && !r.Asks {
		note("5spot.finos.org/reclaim-requested", "is %q, which is no request: to request the machine write %q, else remove it", clip.To(r.Trigger, maxReason), "true")
	}
	if n := utf8.RuneCountInString(r.Reason); n > maxReason {
		note("5spot.finos.org/reclaim-reason", "has %d characters: the first %d are told", n, maxReason)
	}
	if strings.ContainsFunc(r.Reason, clip.Hidden) || !utf8.ValidString(r.Reason) {
		note("5spot.finos.org/reclaim-reason", "has characters that nobody sees: they are left out")
	}
	if _, err := time.Parse(time.RFC3339, r.RequestedAt); r.RequestedAt != "" && err != nil {
		note("5spot.finos.org/reclaim-requested-at", "is %q, which is no time of RFC 3339: the time of its writing counts", clip.To(r.RequestedAt, maxReason))
	}
	return rejected
}
