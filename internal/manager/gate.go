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

// flushing is for how long the end of the manager waits for its audit log.
const flushing = 5 * time.Second

// flush writes what is left of the audit log, also when ctx has ended.
func flush(ctx context.Context, gate *actuate.Gate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushing)
	defer cancel()
	gate.Log.Flush(ctx)
}

// gate is what the flags say about carrying anything out. It says so in the log, where it is
// not all.
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
