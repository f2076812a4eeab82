// SPDX-License-Identifier: Apache-2.0

// Package kubectl answers, at a terminal: what are my machines doing, what comes
// next, and why? It reads files or one cluster. It writes three things only, and
// only for a person who says so: that an owner wants a machine back, that its
// schedule is on again, and that the departures of a Cluster are held. It knows nothing about
// how a schedule is judged; it asks internal/plan and the status that the controllers wrote.
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

// Exit codes: 2 says that the command line or a file must change first, 1 that
// the same command may succeed another time.
const (
	exitOK = iota
	exitFailure
	exitInput
)

// Options is the world around the commands.
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
	cmd.AddCommand(newPlan(o, config), newStatus(o, config), newWhy(o, config), newRails(o, config), newGiveBack(o, config), newResume(o, config), newHoldDepartures(o, config), newReleaseDepartures(o, config), newAudit(o), newVersion(o))
	completeFlags(cmd, config)
	return cmd
}

// knownCommand refuses a word that is no command, and suggests one. Cobra's own suggestion has
// several lines.
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

// addClusterFlags adds the flags that choose a cluster, as kubectl has them. Help
// shows the few that people use.
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

// failure is an error of the world: the cluster's, that of a machine that stands
// otherwise than it should, or that of whoever should have taken the output. All other errors are the caller's.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed marks err, if there is one, as the world's.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return failure{fmt.Errorf("%s: %w", doing, err)}
}

// ExitCode returns the exit code that goes with err: 0, 1 for an error of the
// cluster or a machine in it, or 2 for one of the command line, a file or a schedule.
func ExitCode(err error) int {
	var f failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &f):
		return exitFailure
	default:
		return exitInput
	}
}

// Report prints err, one line for each error that it joins.
func Report(w io.Writer, err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(w, "error: %s\n", tame(line)) // there is no third place to complain to
	}
}

// write prints text for people.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, tame(text))
	return failed("writing", err)
}

// tame replaces what would control the terminal, or hide in it: text may come from a
// file that somebody sent, or from a cluster that somebody else writes to.
func tame(text string) string {
	return strings.Map(func(r rune) rune {
		if clip.Hidden(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
