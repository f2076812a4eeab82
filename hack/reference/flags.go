// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/kubectl"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent"
)

const flagsIntro = `What each program can be told on its command line.
A flag without a default is empty, zero or off.`

// flagHead is the head of every table on the page.
var flagHead = []string{"Flag", "Type", "Default", "Meaning"}

// A flagDoc is one flag as it is documented.
type flagDoc struct{ name, shorthand, kind, value, usage string }

func (f flagDoc) row() []string {
	name := code("--" + f.name)
	if f.shorthand != "" {
		name = code("-"+f.shorthand) + ", " + name
	}
	return []string{name, f.kind, code(f.value), f.usage}
}

func flagsPage(root string) (string, error) {
	var d document
	d.title("Flags", flagsIntro)
	manager, err := managerFlags(root)
	if err != nil {
		return "", err
	}
	sections := []struct {
		title, intro string
		flags        []flagDoc
	}{
		{"manager", "The feature gates, the TLS and the logging flags are Cluster API's and Kubernetes' own; the program's `--help` lists their values.", manager},
		{"reclaim-agent", "A name in brackets is the environment variable that sets the flag where it is not given.", flagsOf(func(fs *pflag.FlagSet) { new(reclaimagent.Options).AddFlags(fs) })},
		{"reclaim-agent check", "Says which running process would ask for the machine, and writes nowhere.", flagsOf(func(fs *pflag.FlagSet) { new(reclaimagent.CheckOptions).AddFlags(fs) })},
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

// flagsOf returns the flags that add adds, without hidden ones, by name.
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
		if value == "false" || value == "0" || value == "[]" {
			value = ""
		}
		docs = append(docs, flagDoc{f.Name, f.Shorthand, kind, value, usage})
	})
	return docs
}

// managerFlags asks the manager itself: its flag set is put together in package
// main, from flags of three libraries.
func managerFlags(root string) ([]flagDoc, error) {
	dir, err := os.MkdirTemp("", "reference-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "manager")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", program, "./cmd/manager") //nolint:gosec // the paths are ours
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the manager: %w\n%s", err, out)
	}
	help, err := exec.CommandContext(context.Background(), program, "--help").CombinedOutput() //nolint:gosec // see above
	if err != nil {
		return nil, fmt.Errorf("asking the manager for help: %w\n%s", err, help)
	}
	return parseHelp(string(help))
}

// A line of pflag's help: shorthand, name, type, meaning and default.
var helpLine = regexp.MustCompile(`^ +(?:-(\w), )?--([a-z][a-z0-9-]*)(?: (\S+))? {2,}(\S.*)$`)

// A default, which ends a meaning.
var helpDefault = regexp.MustCompile(` \(default "?(.*?)"?\)$`)

// parseHelp reads pflag's help. Of a meaning that goes on for several lines, only
// the first is kept: the others list values that differ between releases of Go.
func parseHelp(help string) ([]flagDoc, error) {
	var docs []flagDoc
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n ")
		m := helpLine.FindStringSubmatch(line)
		if m == nil {
			if at := helpDefault.FindStringSubmatch(line); at != nil && len(docs) > 0 {
				docs[len(docs)-1].value = at[1]
			}
			continue
		}
		f := flagDoc{name: m[2], shorthand: m[1], kind: m[3], usage: m[4]}
		if f.kind == "" {
			f.kind = "bool"
		}
		if at := helpDefault.FindStringSubmatchIndex(f.usage); at != nil {
			f.value, f.usage = f.usage[at[2]:at[3]], f.usage[:at[0]]
		}
		if f.value == "[]" {
			f.value = ""
		}
		f.usage = strings.TrimSuffix(f.usage, " Options are:")
		docs = append(docs, f)
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("no flags in:\n%s", help)
	}
	return docs, nil
}
