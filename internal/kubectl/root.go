// SPDX-License-Identifier: Apache-2.0

// Package kubectl implements the kubectl plugin: it shows what scheduled machines do, what happens next, and why. It
// reads files or one cluster, and prints what package plan computes and what the controllers wrote to the status.
//
// It writes only for explicit commands. give-back records an owner's request for a machine. resume turns a schedule on
// again, or deletes a ReclaimedMachine. hold-departures and release-departures change an annotation of Clusters.
// undo-delete creates a ScheduledMachine that is being deleted again.
package kubectl

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// Options holds the streams, the clock and the version that the commands use.
type Options struct {
	In       io.Reader
	Out, Err io.Writer
	Now      func() time.Time
	Version  string
}

// New returns the kubectl-5spot command, which also runs as kubectl 5spot.
func New(o Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-5spot",
		Short:         "Show what scheduled machines do and why; give them back, and lend them again",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl 5spot"},
		SilenceErrors: true, // Report prints them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		Args:                       knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(o.In)
	cmd.SetOut(o.Out)
	cmd.SetErr(o.Err)
	config := addClusterFlags(cmd.PersistentFlags())
	cmd.AddCommand(newPlan(o, config), newStatus(o, config), newWhy(o, config), newHistory(o, config), newRails(o, config), newGiveBack(o, config), newResume(o, config), newHoldDepartures(o, config), newReleaseDepartures(o, config), newUndoDelete(o, config), newAudit(o), newVersion(o))
	completeFlags(cmd, config)
	return cmd
}

// knownCommand rejects an unknown command and suggests a similar one. Cobra's own suggestion has several lines.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	help := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		help = "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), help)
}

// addClusterFlags adds kubectl's flags that select a cluster. Help shows only the three most used.
func addClusterFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	flags.StringVar(&rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig `file`")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Name != "namespace" && f.Name != "kubeconfig" && f.Name != "context"
	})
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// failure is an error of the environment: of the cluster, of a machine in an unsuitable state, or of the output. All
// other errors are errors of the command line, of a file or of a schedule.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed wraps err in a failure with the operation that failed. It returns nil for nil.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return failure{fmt.Errorf("%s: %w", doing, err)}
}

// ExitCode returns the exit code for err: 0 for nil, 1 for a failure, and 2 for any other error. After 1, the same
// command may succeed later. After 2, the command line or a file must change first.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.As(err, new(failure)):
		return 1
	default:
		return 2
	}
}

// Report prints err, one line for each error that it joins.
func Report(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(w, "error: %s\n", escapeControls(line)) // An error of the error stream cannot be reported anywhere.
	}
}

// write prints text for people.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, escapeControls(text))
	return failed("writing", err)
}

// escapeControls replaces characters that control the terminal, or that it does not show. The text may come from a file
// or a cluster that an untrusted person writes to.
func escapeControls(text string) string {
	return strings.Map(func(r rune) rune {
		if clip.Hidden(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
