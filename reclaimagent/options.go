// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/detect"
)

// Options are the flags of the agent.
type Options struct {
	// NodeName is the name of this machine's Node. It is required.
	NodeName string
	// ProcRoot is the path of the machine's /proc.
	ProcRoot string
	// CgroupRoot is the path of the machine's cgroup tree. Empty means that the agent holds no pods.
	CgroupRoot string
	// MachineIDPath is the file with the machine ID.
	MachineIDPath string
	// SkipHostIDCheck disables the comparison of the machine ID with the Node's.
	SkipHostIDCheck bool
	// Detector is the detector mode: auto, netlink or poll.
	Detector string
	// Oneshot checks all processes once, reports a match, and exits.
	Oneshot bool
	// Kubeconfig is the path of a kubeconfig file. Empty means the pod's service account.
	Kubeconfig string
	// MetricsAddress is the listen address for metrics. Empty disables them.
	MetricsAddress string
	// Verbosity is the log verbosity. Above zero enables debug messages.
	Verbosity int
}

// environment maps flags to the variables that set them if the flag is not given.
var environment = []struct{ flag, variable string }{
	{"node-name", "NODE_NAME"},
	{"proc-root", "RECLAIM_PROC_ROOT"},
	{"cgroup-root", "CGROUP_ROOT"},
	{"machine-id-path", "MACHINE_ID_PATH"},
	{"skip-host-id-check", "SKIP_HOST_ID_CHECK"},
	{"detector", "RECLAIM_DETECTOR"},
}

// AddFlags adds the agent's flags to fs. The defaults fit a process that runs directly on the machine; a pod sets the
// paths of its mounts.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.NodeName, "node-name", "", "Name of the Node that is this machine (NODE_NAME). Required.")
	fs.StringVar(&o.ProcRoot, "proc-root", "/proc", "Where the processes of the machine are (RECLAIM_PROC_ROOT).")
	fs.StringVar(&o.CgroupRoot, "cgroup-root", "", "Where the machine's tree of cgroup v2 is mounted, writable, such as /host/cgroup (CGROUP_ROOT). Only a configuration with reclaim_hold uses it. Empty means that pods cannot be held.")
	fs.StringVar(&o.MachineIDPath, "machine-id-path", "/etc/machine-id", "File with the identity of the machine (MACHINE_ID_PATH).")
	fs.BoolVar(&o.SkipHostIDCheck, "skip-host-id-check", false, "Report to the Node without comparing its machine id with this machine's (SKIP_HOST_ID_CHECK).")
	fs.StringVar(&o.Detector, "detector", string(detect.Auto), "How processes are found (RECLAIM_DETECTOR): netlink, poll, or auto, which listens to the kernel where it can and polls where it cannot.")
	fs.BoolVar(&o.Oneshot, "oneshot", false, "Look once, report a match, and exit: 0 if reported, 1 if nothing matches or no patterns are configured.")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "File that names the API server. Empty means the API server of the pod's cluster.")
	fs.StringVar(&o.MetricsAddress, "metrics-address", "", "Where /metrics and /healthz are served, such as 127.0.0.1:9797. Empty means nowhere.")
	fs.IntVarP(&o.Verbosity, "verbosity", "v", 0, "Log verbosity. Above 0 the log also explains why nothing happens.")
	fs.Lookup("verbosity").NoOptDefVal = "1"
}

// FromEnvironment sets the flags of fs that were not given from their environment variables.
func FromEnvironment(fs *pflag.FlagSet, getenv func(string) string) error {
	var errs []error
	for _, e := range environment {
		value := getenv(e.variable)
		if value == "" || fs.Lookup(e.flag) == nil || fs.Changed(e.flag) {
			continue
		}
		if err := fs.Set(e.flag, value); err != nil {
			errs = append(errs, fmt.Errorf("reading %s: %w", e.variable, err))
		}
	}
	return errors.Join(errs...)
}

// Validate returns all errors in o, joined.
func (o *Options) Validate() error {
	var errs []error
	if o.NodeName == "" {
		errs = append(errs, errors.New("node name is missing: set --node-name or NODE_NAME"))
	}
	if _, err := detect.ParseMode(o.Detector); err != nil {
		errs = append(errs, fmt.Errorf("--detector: %w", err))
	}
	if o.ProcRoot == "" {
		errs = append(errs, errors.New("--proc-root is empty"))
	}
	if o.MachineIDPath == "" && !o.SkipHostIDCheck {
		errs = append(errs, errors.New("--machine-id-path is empty"))
	}
	if _, _, err := net.SplitHostPort(o.MetricsAddress); o.MetricsAddress != "" && err != nil {
		errs = append(errs, fmt.Errorf("--metrics-address is %q, want an address such as 127.0.0.1:9797: %w", o.MetricsAddress, err))
	}
	if o.Verbosity < 0 {
		errs = append(errs, fmt.Errorf("--verbosity is %d, want 0 or more", o.Verbosity))
	}
	return errors.Join(errs...)
}
