// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/guard"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/manager"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent"
)

const flagsIntro = `The command-line flags of each program.
A flag without a default is empty, zero or off.`

// flagHead is the head of every table on the page.
var flagHead = []string{"Flag", "Type", "Default", "Meaning"}

// A flagDoc is the documentation of one flag.
type flagDoc struct{ name, shorthand, kind, value, usage string }

func (f flagDoc) row() []string {
	name := code("--" + f.name)
	if f.shorthand != "" {
		name = code("-"+f.shorthand) + ", " + name
	}
	return []string{name, f.kind, code(f.value), f.usage}
}

func flagsPage(string) (string, error) {
	var d document
	d.title("Flags", flagsIntro)
	sections := []struct {
		title, intro string
		flags        []flagDoc
	}{
		{"manager", "The feature gates, the TLS and the logging flags are Cluster API's and Kubernetes' own; the program's `--help` lists their values.", flagsOf(manager.NewOptions().AddFlags)},
		{"reclaim-agent", "If a flag is not given, the environment variable in brackets in the last column sets it.", flagsOf(func(fs *pflag.FlagSet) { new(reclaimagent.Options).AddFlags(fs) })},
		{"reclaim-agent check", "Lists the running processes that would request the machine, and writes nothing.", flagsOf(func(fs *pflag.FlagSet) { new(reclaimagent.CheckOptions).AddFlags(fs) })},
		{"eviction-guard", "The logging flags are Kubernetes' own. See [operators](../operators.md).", flagsOf(func(fs *pflag.FlagSet) { fs.AddFlagSet(new(guard.Flags).FlagSet("")) })},
	}
	root5 := kubectl.New(kubectl.Options{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	for _, c := range append([]*cobra.Command{root5}, root5.Commands()...) {
		own := flagsOf(func(fs *pflag.FlagSet) { fs.AddFlagSet(c.NonInheritedFlags()) })
		if len(own) > 0 {
			sections = append(sections, struct {
				title, intro string
				flags        []flagDoc
			}{c.CommandPath(), c.Short + ".", own})
		}
	}
	for _, s := range sections {
		d.section(s.title, s.intro)
		var rows [][]string
		for _, f := range s.flags {
			if f.usage == "" {
				return "", fmt.Errorf("%s --%s: no description", s.title, f.name)
			}
			rows = append(rows, f.row())
		}
		d.table(flagHead, rows)
	}
	return d.String(), nil
}

// flagsOf returns the flags that add adds, sorted by name, without hidden flags.
func flagsOf(add func(*pflag.FlagSet)) []flagDoc {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(fs)
	var docs []flagDoc
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		if kind == "" {
			kind = f.Value.Type()
		}
		value := f.DefValue
		if value == "false" || value == "0" || value == "[]" || value == "0s" {
			value = ""
		}
		// The lines after the first list values that differ between releases of Go.
		usage, _, _ = strings.Cut(usage, "\n")
		usage = strings.TrimSuffix(usage, " Options are:")
		docs = append(docs, flagDoc{f.Name, f.Shorthand, kind, value, usage})
	})
	return docs
}
