// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// flushing is how long the shutdown waits for the audit log.
const flushing = 5 * time.Second

// flush writes the remaining lines of the audit log, also after ctx has ended.
func flush(ctx context.Context, gate *actuate.Gate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer cancel()
	gate.Log.Flush(ctx)
}

// gate returns the actuation gate for the flags. It logs a warning if writes are suppressed.
func (o *Options) gate() (*actuate.Gate, error) {
	log, err := audit.Open(o.auditLog)
	if err != nil {
		return nil, fmt.Errorf("--audit-log=%s: %w", o.auditLog, err)
	}
	if log != nil {
		log.Failed = func(err error) {
			telemetry.AuditFailed()
			klog.ErrorS(err, "Lost a line of the decision audit log")
		}
	}
	if o.actuationPaused {
		klog.Warning("Actuation is paused: nothing is carried out, emergencies included")
	}
	if o.dryRun {
		klog.Warning("Dry run: nothing is carried out, and nothing is written")
	}
	return &actuate.Gate{Paused: o.actuationPaused, DryRun: o.dryRun, Log: log}, nil
}
