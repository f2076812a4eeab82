// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/telemetry"
)

// A Gate says whether what Actuators write is sent, and keeps what was tried. The zero
// value sends everything. It must not be changed once an Actuator is behind it, and many
// may be.
type Gate struct {
	// Paused suppresses every write but the status of ScheduledMachines, without its phase.
	Paused bool
	// DryRun suppresses every write. With Paused it only says what else is not written.
	DryRun bool
	// Log gets a line for each try; nil gets none.
	Log *audit.Log

	tries tries
}

// Suppresses reports whether nothing is carried out.
func (g *Gate) Suppresses() bool { return g.Paused || g.DryRun }

// showsStatus says whether the status of a ScheduledMachine is written all the same.
func (g *Gate) showsStatus() bool { return !g.DryRun }

// Suppressed is the error of a write that was not sent, because actuation is paused or the
// manager only says what it would do. Nothing failed and nothing changed: whoever gets it
// leaves things where they are, and does not try again because of it. The gate does not
// open before the manager is started anew.
type Suppressed struct{ by audit.Outcome }

// Error implements error.
func (s Suppressed) Error() string {
	if s.by == audit.DryRun {
		return "dry run: nothing is carried out"
	}
	return "actuation is paused: nothing is carried out"
}

// refusal is what a write gets that is not sent.
func (g *Gate) refusal() Suppressed {
	if g.Paused {
		return Suppressed{audit.Suppressed}
	}
	return Suppressed{audit.DryRun}
}

// IsSuppressed reports whether err says that a write was not sent.
func IsSuppressed(err error) bool {
	_, ok := errors.AsType[Suppressed](err)
	return ok
}

// joined is what errors.Join returns.
type joined interface {
	error
	Unwrap() []error
}

// IgnoreSuppressed returns err without what IsSuppressed reports.
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

// suppress tells of an intention that is not carried out, where it has not been told of
// yet.
func (g *Gate) suppress(ctx context.Context, t target, line audit.Line, want action, step string) {
	id, news := g.tries.tell(t, want)
	if !news {
		return
	}
	line.Outcome, line.ActionID, line.Attempt = g.refusal().by, id+step, 1
	log := ctrl.LoggerFrom(ctx).WithValues("kind", line.Kind, "machine", line.Machine, "cluster", line.Cluster,
		"reason", line.Reason, "graceSeconds", line.GraceSeconds, "lane", line.Lane, "write", t.String())
	if g.Paused {
		telemetry.Suppressed(string(line.Kind))
		log.Info("Actuation is paused: suppressed action")
	} else {
		telemetry.WouldAct(string(line.Kind))
		log.Info("Dry run: would execute action")
	}
	g.Log.Write(line)
}

// end notes what became of a try.
func (g *Gate) end(t target, id string, line audit.Line) {
	for _, told := range g.tries.end(t, id, line) {
		told.Time = line.Time
		g.tell(told)
	}
}

func (g *Gate) tell(line audit.Line) {
	telemetry.Acted(string(line.Kind), string(line.Outcome))
	g.Log.Write(line)
}
