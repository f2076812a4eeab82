// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// maxReason is the maximum length of a reason in characters. A pattern has the same maximum.
const maxReason = 256

// A Request has the annotations of an owner's request on a Node.
type Request struct {
	// Node is the name of the Node.
	Node string
	// Requested reports that the Node requests the machine for its owner. Marked reports that it has the annotation.
	// Trigger is the value of that annotation.
	Requested, Marked bool
	Trigger           string
	// Reason and RequestedAt are the other annotations, empty if absent.
	Reason, RequestedAt string
	// Hold is the agent's report of a hold. HoldUnreadable reports that no agent writes it in this form.
	Hold           string
	HoldUnreadable bool
}

// ScreenRequest returns the rejections of a request. Only the trigger decides whether the owner requests the
// machine. If another annotation is wrong, its value is not used, and the request is served.
func ScreenRequest(r Request) []Rejection {
	var rejected []Rejection
	note := func(field, format string, args ...any) {
		rejected = append(rejected, Rejection{Annotation, fmt.Sprintf("Node %s: annotation %s ", r.Node, field) + fmt.Sprintf(format, args...)})
	}
	if r.Marked && !r.Requested {
		note("5spot.finos.org/reclaim-requested", "is %q, which is no request: to request the machine write %q, else remove it", clip.To(r.Trigger, maxReason), "true")
	}
	if n := utf8.RuneCountInString(r.Reason); n > maxReason {
		note("5spot.finos.org/reclaim-reason", "has %d characters: the first %d are used", n, maxReason)
	}
	if strings.ContainsFunc(r.Reason, clip.Hidden) || !utf8.ValidString(r.Reason) {
		note("5spot.finos.org/reclaim-reason", "has invisible characters: they are removed")
	}
	if _, err := time.Parse(time.RFC3339, r.RequestedAt); r.RequestedAt != "" && err != nil {
		note("5spot.finos.org/reclaim-requested-at", "is %q, which is no time of RFC 3339: the time of its writing counts", clip.To(r.RequestedAt, maxReason))
	}
	if r.HoldUnreadable {
		note("5spot.finos.org/reclaim-hold", "is %q, which no agent writes: it is ignored", clip.To(r.Hold, maxReason))
	}
	return rejected
}
