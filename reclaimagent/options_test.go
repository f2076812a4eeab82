// SPDX-License-Identifier: Apache-2.0

package reclaimagent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/kubeapi"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/procevents"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

func TestOptions(t *testing.T) {
	defaults := reclaimagent.Options{NodeName: "ws", ProcRoot: "/proc", MachineIDPath: "/etc/machine-id", Detector: "auto"}
	with := func(f func(o *reclaimagent.Options)) reclaimagent.Options { o := defaults; f(&o); return o }
	cases := map[string]struct {
		reason string
		args   []string
		env    map[string]string
		want   reclaimagent.Options
		err    string
	}{
		"Defaults": {"One value is enough.", []string{"--node-name=ws"}, nil, defaults, ""},
		"Environment": {
			"Every variable is read.", nil,
			map[string]string{"NODE_NAME": "ws", "RECLAIM_PROC_ROOT": "/host/proc", "CGROUP_ROOT": "/host/cgroup", "MACHINE_ID_PATH": "/host/id", "SKIP_HOST_ID_CHECK": "true", "RECLAIM_DETECTOR": "poll"},
			reclaimagent.Options{NodeName: "ws", ProcRoot: "/host/proc", CgroupRoot: "/host/cgroup", MachineIDPath: "/host/id", SkipHostIDCheck: true, Detector: "poll"},
			"",
		},
		"FlagBeatsEnvironment": {"A flag has precedence.", []string{"--node-name", "ws", "--detector=netlink"}, map[string]string{"NODE_NAME": "other", "RECLAIM_DETECTOR": "poll"}, with(func(o *reclaimagent.Options) { o.Detector = "netlink" }), ""},
		"SkipTrue":             {"In its long form.", []string{"--node-name=ws", "--skip-host-id-check=true"}, nil, with(func(o *reclaimagent.Options) { o.SkipHostIDCheck = true }), ""},
		"SkipFalse":            {"In its long form.", []string{"--node-name=ws", "--skip-host-id-check=false"}, map[string]string{"SKIP_HOST_ID_CHECK": "true"}, defaults, ""},
		"SkipShort":            {"In its short form.", []string{"--node-name=ws", "--skip-host-id-check"}, nil, with(func(o *reclaimagent.Options) { o.SkipHostIDCheck = true }), ""},
		"Verbose":              {"The short form needs no value.", []string{"--node-name=ws", "-v"}, nil, with(func(o *reclaimagent.Options) { o.Verbosity = 1 }), ""},
		"MoreVerbose":          {"With a number.", []string{"--node-name=ws", "-v=4"}, nil, with(func(o *reclaimagent.Options) { o.Verbosity = 4 }), ""},
		"Rest":                 {"All other flags.", []string{"--node-name=ws", "--oneshot", "--kubeconfig=k", "--metrics-address=127.0.0.1:9797"}, nil, with(func(o *reclaimagent.Options) { o.Oneshot, o.Kubeconfig, o.MetricsAddress = true, "k", "127.0.0.1:9797" }), ""},
		"NoNode":               {"The name of the Node is required.", nil, nil, reclaimagent.Options{}, "NODE_NAME"},
		"UnknownDetector":      {"The known ones are named.", []string{"--node-name=ws", "--detector=ebpf"}, nil, reclaimagent.Options{}, "auto, netlink, poll"},
		"SkipNonsense":         {"A switch is true or false.", []string{"--node-name=ws"}, map[string]string{"SKIP_HOST_ID_CHECK": "maybe"}, reclaimagent.Options{}, "SKIP_HOST_ID_CHECK"},
		"NoProcRoot":           {"The path is required.", []string{"--node-name=ws", "--proc-root="}, nil, reclaimagent.Options{}, "--proc-root"},
		"NoMachineID":          {"The machine ID is required unless the check is skipped.", []string{"--node-name=ws", "--machine-id-path="}, nil, reclaimagent.Options{}, "--machine-id-path"},
		"UnknownFlag":          {"An unknown flag is an error.", []string{"--nodename=ws"}, nil, reclaimagent.Options{}, "nodename"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var o reclaimagent.Options
			flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
			flags.SetOutput(io.Discard)
			o.AddFlags(flags)
			err := errors.Join(flags.Parse(tc.args), reclaimagent.FromEnvironment(flags, func(key string) string { return tc.env[key] }), o.Validate())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s\nerror %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, o); diff != "" || err != nil {
				t.Errorf("%s\nerror %v: -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}

// tree writes a proc root, and a reclaim.toml beside it.
func tree(t *testing.T, toml string) (config, proc string) {
	t.Helper()
	dir := t.TempDir()
	proc = filepath.Join(dir, "proc")
	files := fstest.MapFS{}
	for path, text := range map[string]string{
		"100/comm": "bash\n", "100/cmdline": "bash\x00/opt/idea/bin/idea.sh\x00",
		"20/comm": "java\n", "20/cmdline": "java\x00-jar\x00app.jar\x00",
		"3/comm": "java\n", "3/cmdline": "java\x00", "3/cgroup": "0::/kubepods.slice/kubepods-pod1.slice\n",
		"2/comm": "kthreadd\n", "2/cmdline": "",
		"1/comm": "init\n", "1/cmdline": "/sbin/init\x00", "1/status": "Uid:\t0\t0\t0\t0\n",
		"4/comm": "steam\n", "4/cmdline": "steam\x00", "4/cgroup": "0::/kubepods.slice/kubepods-pod1.slice\n",
	} {
		files[path] = &fstest.MapFile{Data: []byte(text)}
	}
	if err := os.CopyFS(proc, files); err != nil {
		t.Fatal(err)
	}
	config = filepath.Join(dir, "reclaim.toml")
	if err := os.WriteFile(config, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	return config, proc
}

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		reason string
		toml   string
		change func(o *reclaimagent.CheckOptions)
		want   string
		code   int
		err    string
	}{
		"ByName": {
			reason: "Not the pod's.",
			toml:   "match_commands = ['java']",
			want:   "{\"pid\":20,\"program\":\"java\",\"pattern\":\"java\",\"source\":\"comm\",\"reason\":\"process-match: java\"}\n",
		},
		"ByArguments": {
			reason: "The arguments count too.",
			toml:   "match_argv_substrings = ['idea']",
			want:   "{\"pid\":100,\"program\":\"bash\",\"pattern\":\"idea\",\"source\":\"argv\",\"reason\":\"process-match: idea\"}\n",
		},
		"Text": {
			reason: "For people.",
			toml:   "match_commands = ['java']",
			change: func(o *reclaimagent.CheckOptions) { o.Output = "text" },
			want:   "process 20, program \"java\": its name is \"java\"\n",
		},
		"All": {
			reason: "All matches are printed, not only the first.",
			toml:   "match_commands = ['java']\nmatch_argv_substrings = ['sh', 'app.jar']",
			change: func(o *reclaimagent.CheckOptions) { o.Output = "text" },
			want:   "process 20, program \"java\": its name is \"java\"\nprocess 100, program \"bash\": its arguments contain \"sh\"\n",
		},
		"OnlyPods":     {"The output has the number of excluded processes.", "match_commands = ['steam']", nil, "", 1, "no process of the owner matches, and 1 of pods"},
		"None":         {"Nothing would trigger.", "match_commands = ['gimp']", nil, "", 1, "no process matches"},
		"Inert":        {"The configuration has no patterns.", "", nil, "", 1, "no process matches"},
		"UnknownField": {"Bad input is named.", "match_comands = ['java']", nil, "", 2, `unknown field "match_comands"`},
		"Syntax":       {"With its line.", "match_commands = [", nil, "", 2, "line 1"},
		"NoConfig":     {"A file that is not there is named.", "", func(o *reclaimagent.CheckOptions) { o.Config += ".not" }, "", 2, "reclaim.toml.not"},
		"NoProcRoot":   {"So is a folder.", "match_commands = ['java']", func(o *reclaimagent.CheckOptions) { o.ProcRoot += ".not" }, "", 2, "proc.not"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config, proc := tree(t, tc.toml)
			o := reclaimagent.CheckOptions{Config: config, ProcRoot: proc, Output: "json"}
			if tc.change != nil {
				tc.change(&o)
			}
			var out bytes.Buffer
			err := reclaimagent.Check(o, &out, slog.New(slog.DiscardHandler), time.Now)
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("%s\noutput: -want, +got:\n%s", tc.reason, diff)
			}
			if code := reclaimagent.ExitCode(err); code != tc.code || (tc.err != "" && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("%s\nexit code %d with %v, want %d with %q", tc.reason, code, err, tc.code, tc.err)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"Nil":      {nil, 0},
		"Stopped":  {fmt.Errorf("x: %w", context.Canceled), 0},
		"Other":    {io.EOF, 1},
		"Nothing":  {reclaimagent.ErrNothing, 1},
		"Usage":    {fmt.Errorf("%w: %w", reclaimagent.ErrUsage, fs.ErrNotExist), 2},
		"Identity": {fmt.Errorf("x: %w", report.ErrHostIdentity), 3},
		"Detector": {fmt.Errorf("x: %w", procevents.ErrUnavailable), 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reclaimagent.ExitCode(tc.err); got != tc.want {
				t.Errorf("ExitCode(%v) = %d, want %d", tc.err, got, tc.want)
			}
		})
	}
}

func TestRunReportsMissingRequirements(t *testing.T) {
	dir := t.TempDir()
	blank := filepath.Join(dir, "blank")
	if err := os.WriteFile(blank, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		change func(o *reclaimagent.Options)
		want   string
	}{
		"NoProc":           {"The agent needs /proc.", func(o *reclaimagent.Options) { o.ProcRoot = dir + "/no-proc" }, "no-proc"},
		"NoMachineID":      {"The agent needs the machine ID.", func(o *reclaimagent.Options) { o.SkipHostIDCheck, o.MachineIDPath = false, dir+"/no-id" }, "no-id"},
		"BlankMachineID":   {"A blank machine ID is invalid.", func(o *reclaimagent.Options) { o.SkipHostIDCheck, o.MachineIDPath = false, blank }, "is blank"},
		"NoCluster":        {"The agent needs an API server.", func(*reclaimagent.Options) {}, kubeapi.ErrNotInCluster.Error()},
		"NoKubeconfig":     {"The file is named.", func(o *reclaimagent.Options) { o.Kubeconfig = dir + "/no-config" }, "no-config"},
		"DetectorNonsense": {"The known ones are named.", func(o *reclaimagent.Options) { o.Detector = "x" }, "netlink"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := reclaimagent.Options{NodeName: "ws", ProcRoot: dir, SkipHostIDCheck: true, Detector: "poll"}
			tc.change(&o)
			err := reclaimagent.Run(t.Context(), o, reclaimagent.Environment{
				Log: slog.New(slog.DiscardHandler), Now: time.Now, Getenv: func(string) string { return "" },
			})
			if !errors.Is(err, reclaimagent.ErrUsage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nRun() = %v, want ErrUsage with %q", tc.reason, err, tc.want)
			}
		})
	}
}
