// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// A Gate determines whether Actuators send writes, and has their audit log. The zero value sends everything. It must
// not be changed after an Actuator uses it. Several Actuators may share it.
type Gate struct {
	// Paused suppresses every write except the status of ScheduledMachines without its phase.
	Paused bool
	// DryRun suppresses every write. If Paused is set too, actions count as suppressed and not as dry run.
	DryRun bool
	// Log gets a line for each write of an Action. It may be nil.
	Log *audit.Log
}

// Suppresses reports whether writes are suppressed.
func (g *Gate) Suppresses() bool { return g.Paused || g.DryRun }

// Suppressed is the error of a write that was not sent because of a pause or dry run. It is not a failure and
// nothing changed. Callers do not retry because of it: the suppression lasts until the manager restarts.
type Suppressed struct{ by audit.Outcome }

// Error implements error.
func (s Suppressed) Error() string {
	if s.by == audit.DryRun {
		return "dry run: nothing is carried out"
	}
	return "actuation is paused: nothing is carried out"
}

// refusal returns the error for a suppressed write.
func (g *Gate) refusal() Suppressed {
	if g.Paused {
		return Suppressed{audit.Suppressed}
	}
	return Suppressed{audit.DryRun}
}

// IsSuppressed reports whether err means that a write was not sent.
func IsSuppressed(err error) bool {
	_, ok := errors.AsType[Suppressed](err)
	return ok
}

// joined is the interface of the result of errors.Join.
type joined interface {
	error
	Unwrap() []error
}

// IgnoreSuppressed returns err without the errors that IsSuppressed reports.
func IgnoreSuppressed(err error) error {
	if !IsSuppressed(err) {
		return err
	}
	all, ok := errors.AsType[joined](err)
	if !ok {
		return nil
	}
	var rest []error
	for _, e := range all.Unwrap() {
		rest = append(rest, IgnoreSuppressed(e))
	}
	return errors.Join(rest...)
}

// record counts a write of an Action, and adds its line to the audit log. what is the write in words.
func (g *Gate) record(ctx context.Context, line audit.Line, what string) {
	log := ctrl.LoggerFrom(ctx).WithValues("kind", line.Kind, "machine", line.Machine, "cluster", line.Cluster,
		"reason", line.Reason, "graceSeconds", line.GraceSeconds, "lane", line.Lane, "write", what)
	switch line.Outcome {
	case audit.Suppressed:
		telemetry.Suppressed(string(line.Kind))
		log.Info("Actuation is paused: suppressed action")
	case audit.DryRun:
		telemetry.WouldAct(string(line.Kind))
		log.Info("Dry run: would execute action")
	default:
		telemetry.Acted(string(line.Kind), string(line.Outcome))
	}
	g.Log.Write(line)
}
