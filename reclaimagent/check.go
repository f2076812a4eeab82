// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
)

// CheckOptions are what check is told.
type CheckOptions struct {
	// Config is a reclaim.toml. It is required.
	Config string
	// ProcRoot is where the processes are.
	ProcRoot string
	// Output is the form of the answer: text or json.
	Output string
}

// AddFlags adds the flags of check to fs.
func (o *CheckOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Config, "config", "", "The reclaim.toml to check. Required.")
	fs.StringVar(&o.ProcRoot, "proc-root", "/proc", "Where the processes are (RECLAIM_PROC_ROOT).")
	fs.StringVarP(&o.Output, "output", "o", "text", "Form of the answer: text or json.")
}

// Validate reports everything that is wrong with o.
func (o *CheckOptions) Validate() error {
	var errs []error
	if o.Config == "" {
		errs = append(errs, errors.New("--config is missing"))
	}
	if o.Output != "text" && o.Output != "json" {
		errs = append(errs, fmt.Errorf("--output is %q, want text or json", o.Output))
	}
	return errors.Join(errs...)
}

// finding is the answer of check.
type finding struct {
	PID     int    `json:"pid"`
	Pattern string `json:"pattern"`
	Source  string `json:"source"`
	Reason  string `json:"reason"`
}

// Check writes to w which running process would ask for the machine now: the one
// with the lowest pid, if several would. It returns [ErrNothing] if none would,
// and an error that wraps [ErrUsage] for bad input. It writes nowhere else.
func Check(o CheckOptions, w io.Writer, log *slog.Logger, now func() time.Time) error {
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return fmt.Errorf("%w: reading configuration: %w", ErrUsage, err)
	}
	c, err := config.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUsage, o.Config, err)
	}
	d := detect.New(detect.Options{
		Mode: detect.Poll, Log: log, Now: now, Metrics: &metrics.Set{},
		Open: func() (*process.Table, error) { return process.Open(o.ProcRoot) },
	})
	matches, err := d.Scan(compile(c, log))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if len(matches) == 0 {
		return fmt.Errorf("%w: no process matches", ErrNothing)
	}
	m := matches[0]
	f := finding{PID: m.PID, Pattern: m.Pattern, Source: string(m.Source), Reason: reclaim.Reason(m.Pattern)}
	if o.Output == "json" {
		return json.NewEncoder(w).Encode(f)
	}
	_, err = fmt.Fprintf(w, "process %d matches %q by its %s (%s)\n", f.PID, f.Pattern, f.Source, f.Reason)
	return err
}
