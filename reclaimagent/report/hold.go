// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"net/http"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/retry"
)

// HoldReporter writes [reclaim.HoldAnnotation] to the Node. It has its own goroutine and requests, so that it never
// delays a request for the machine.
type HoldReporter struct {
	r     *Reporter
	texts Latest[string]
}

// NewHoldReporter returns a HoldReporter. It needs no Holder.
func NewHoldReporter(o Options) *HoldReporter {
	return &HoldReporter{r: New(o), texts: NewLatest[string]()}
}

// Set sets the value that Run writes. Empty removes the annotation. Set does not block. Only one goroutine at a time
// may call it.
func (h *HoldReporter) Set(text string) { h.texts.Put(text) }

// Run writes each value until ctx is done.
func (h *HoldReporter) Run(ctx context.Context) {
	log := h.r.newFailureLog("Writing the hold to the Node")
	backoff := retry.Backoff{First: firstRetry, Last: maxStateRetry}
	var due <-chan time.Time
	text, failing := "", false
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-h.texts:
			if failing && next == text {
				continue // until due
			}
			text = next
			backoff.Reset()
		case <-due:
		}
		err := h.write(ctx, text)
		switch failing = err != nil; {
		case err == nil, ctx.Err() != nil:
		case isRejected(err):
			log.warn(err)
			due = time.NewTimer(retry.Jitter(stateCheckInterval)).C
		default:
			log.warn(err)
			due = time.NewTimer(backoff.Next()).C
		}
	}
}

// isRejected reports whether the server does not permit the write: for example, because an admission policy of an
// installation without holds does not allow the annotation.
func isRejected(err error) bool {
	code := kubeapi.Code(err)
	return code == http.StatusForbidden || code == http.StatusUnprocessableEntity
}

// write writes the value unless the Node has it. It writes nothing if the Node is another machine.
func (h *HoldReporter) write(ctx context.Context, text string) error {
	n, err := h.r.getIdentified(ctx)
	if err != nil || n.Metadata.Annotations[reclaim.HoldAnnotation] == text {
		return err
	}
	if text == "" {
		return h.r.annotate(ctx, n, reclaim.HoldAnnotation, nil)
	}
	return h.r.annotate(ctx, n, reclaim.HoldAnnotation, &text)
}
