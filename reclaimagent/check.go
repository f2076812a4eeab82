// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/config"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/match"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/process"
)

// CheckOptions are the flags of the command check.
type CheckOptions struct {
	// Config is the path of a reclaim.toml. It is required.
	Config string
	// ProcRoot is the path of /proc.
	ProcRoot string
	// Output is the output format: text or json.
	Output string
}

// AddFlags adds the flags of check to fs.
func (o *CheckOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Config, "config", "", "The reclaim.toml to check, such as /dev/stdin. Required.")
	fs.StringVar(&o.ProcRoot, "proc-root", "/proc", "Where the processes are (RECLAIM_PROC_ROOT).")
	fs.StringVarP(&o.Output, "output", "o", "text", "Form of the answer: text, or json with one object per line.")
}

// Validate returns all errors in o, joined.
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

// finding is the output for one matching process.
type finding struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Pattern string `json:"pattern"`
	Source  string `json:"source"`
	Reason  string `json:"reason"`
}

// sources are the output texts for the part of a process that matched.
var sources = map[match.Source]string{match.Comm: "its name is", match.Argv: "its arguments contain"}

// Check writes to w which running processes would cause a request now, sorted by PID. It returns [ErrNothing] if there
// are none, and an error that wraps [ErrUsage] for invalid input or if processes are hidden. It never writes to the
// Node.
func Check(o CheckOptions, w io.Writer, log *slog.Logger, now func() time.Time) error {
	text, err := os.ReadFile(o.Config)
	if err != nil {
		return fmt.Errorf("%w: reading configuration: %w", ErrUsage, err)
	}
	c, err := config.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUsage, o.Config, err)
	}
	var counts metrics.Set
	d := detect.New(detect.Options{
		Mode: detect.Poll, Log: log, Now: now, Metrics: &counts,
		Open: func() (*process.Table, error) { return process.Open(o.ProcRoot) },
	})
	matches, err := d.Scan(compile(c, log))
	for _, m := range matches {
		comm, _ := os.ReadFile(filepath.Join(o.ProcRoot, strconv.Itoa(m.PID), "comm")) // Empty if the process has ended.
		f := finding{
			PID: m.PID, Program: strings.TrimSuffix(string(comm), "\n"),
			Pattern: m.Pattern, Source: string(m.Source), Reason: reclaim.Reason(m.Pattern),
		}
		if err := f.write(w, o.Output); err != nil {
			return err
		}
	}
	switch excluded := counts.Excluded.Load(); {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case len(matches) > 0:
		return nil
	case excluded > 0:
		return fmt.Errorf("%w: no process of the owner matches, and %d of pods, containers or the kubelet do", ErrNothing, excluded)
	default:
		return fmt.Errorf("%w: no process matches", ErrNothing)
	}
}

func (f finding) write(w io.Writer, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(f)
	}
	_, err := fmt.Fprintf(w, "process %d, program %q: %s %q\n", f.PID, f.Program, sources[match.Source(f.Source)], f.Pattern)
	return err
}
