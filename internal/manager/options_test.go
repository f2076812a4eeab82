// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

func TestValidateNamesTheFlag(t *testing.T) {
	cases := map[string]string{
		"":                                                "",
		"--scheduledmachine-concurrency=0":                "--scheduledmachine-concurrency=0: must be at least 1",
		"--clustercache-concurrency=-1":                   "--clustercache-concurrency=-1: must be at least 1",
		"--agent-install=disabled":                        "",
		"--agent-install=never":                           "--agent-install=never: must be enabled or disabled",
		"--reclaim-agent-detector=poll":                   "",
		"--reclaim-agent-detector=netlink":                "--reclaim-agent-detector=netlink: must be auto or poll",
		"--pod=5spot-system/manager-0":                    "",
		"--pod=manager-0":                                 "--pod=manager-0: must be a namespace and a name",
		"--runtime-extension=disabled":                    "",
		"--runtime-extension=on":                          "--runtime-extension=on: must be one of [enabled disabled external]",
		"--runtime-extension=external":                    "",
		"--runtime-extension-url=https://192.0.2.1:9443":  "",
		"--runtime-extension-url=http://192.0.2.1:9443":   "--runtime-extension-url=http://192.0.2.1:9443: must be https",
		"--runtime-extension-url=https://me:pw@192.0.2.1": "--runtime-extension-url=https://me:pw@192.0.2.1: must be https",
		"--sync-period=0s":                                "--sync-period=0s: must be positive",
		"--maintenance-lead-time=-1s":                     "--maintenance-lead-time=-1s: must not be negative",
		"--detach-taints=karpenter.sh/disrupted,spot":     "",
		"--detach-taints=aws-node-termination-handler/*":  "",
		"--detach-taints=spot-*":                          "",
		"--detach-taints=":                                "",
		"--detach-taints=spot,a.b/c:NoSchedule":           "--detach-taints=a.b/c:NoSchedule: must be the key of a taint, such as karpenter.sh/disrupted, without value and effect; it may end with *",
		"--detach-taints=spot=true":                       "--detach-taints=spot=true: must be the key of a taint",
		"--detach-taints=spot,,a.b/c":                     "--detach-taints=: must be the key of a taint",
		"--detach-taints=*/disrupted":                     "--detach-taints=*/disrupted: must be the key of a taint",
		"--detach-taints=*":                               "--detach-taints=*: must be the key of a taint",
		"--leader-elect-renew-deadline=1m":                "--leader-elect-renew-deadline=1m0s: must be shorter than --leader-elect-lease-duration=15s",
	}
	for arg, want := range cases {
		t.Run(arg, func(t *testing.T) {
			o := NewOptions()
			if err := o.Parse(o.FlagSet("manager"), strings.Fields(arg)); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("got %v, want %s…", err, want)
			}
		})
	}
}

func TestParseRefusesVariablesWithoutAValue(t *testing.T) {
	o := NewOptions()
	err := o.Parse(o.FlagSet("manager"), []string{"--v=${FIVESPOT_LOG_LEVEL:=2}"})
	if err == nil || !strings.Contains(err.Error(), "FIVESPOT_LOG_LEVEL") || !strings.Contains(err.Error(), "clusterctl generate yaml") {
		t.Errorf("manifests that clusterctl has not seen must be told from a bad number, with the way out: %v", err)
	}
}

func TestEveryShardHasALeaseOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for _, args := range []string{
		"", "--watch-filter=a", "--watch-filter=b", "--watch-filter=A_.b", "--namespace=a", "--namespace=a --watch-filter=a",
		"--dry-run", "--dry-run --watch-filter=a",
	} {
		o := NewOptions()
		if err := o.Parse(o.FlagSet("manager"), strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		name := o.leaseName()
		if other, taken := seen[name]; taken {
			t.Errorf("managers with %q and %q would take the lease %s from each other", args, other, name)
		}
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q: %s is no name: %v", args, name, problems)
		}
		seen[name] = args
	}
	if _, kept := seen["controller-leader-election-5spot"]; !kept {
		t.Errorf("replicas of two versions share a lease while one follows the other: %v", seen)
	}
}

// TestAPausedManagerTakesTheLease checks that a manager with paused actuation uses the same lease as the one
// that it replaces.
func TestAPausedManagerTakesTheLease(t *testing.T) {
	paused, live := NewOptions(), NewOptions()
	for o, args := range map[*Options][]string{paused: {"--actuation-paused"}, live: {}} {
		if err := o.Parse(o.FlagSet("manager"), args); err != nil {
			t.Fatal(err)
		}
	}
	if paused.leaseName() != live.leaseName() {
		t.Error("the manager before goes on while the paused one leads, too")
	}
}

func TestTheFlagsMakeTheGate(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	cases := map[string]struct {
		reason, args   string
		paused, dryRun bool
		log            bool
		err            string
	}{
		"Defaults":   {"A manager acts unless a flag says otherwise.", "", false, false, false, ""},
		"Paused":     {"", "--actuation-paused", true, false, false, ""},
		"DryRun":     {"", "--dry-run", false, true, false, ""},
		"Both":       {"Each is kept: the gate knows which wins.", "--actuation-paused --dry-run", true, true, false, ""},
		"Manifest":   {"What clusterctl fills in by default is off.", "--actuation-paused=false --dry-run=false --audit-log=", false, false, false, ""},
		"Log":        {"", "--audit-log=" + log, false, false, true, ""},
		"Stdout":     {"", "--audit-log=-", false, false, true, ""},
		"Unwritable": {"The error names the flag and the file.", "--audit-log=/none/audit.jsonl", false, false, false, "--audit-log=/none/audit.jsonl: open /none/audit.jsonl: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			if err := o.Parse(o.FlagSet("manager"), strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			gate, err := o.gate()
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if err != nil || gate.Paused != tc.paused || gate.DryRun != tc.dryRun || (gate.Log != nil) != tc.log {
				t.Errorf("%s: %+v, %v", tc.reason, gate, err)
			}
		})
	}
}

func TestTheFlagsLimitDepartures(t *testing.T) {
	for args, want := range map[string]struct {
		limits departurecap.Fraction
		lease  time.Duration
		err    string
	}{
		"":                              {50_000, 0, ""},
		"--departure-cap-fraction=0":    {0, 0, ""},
		"--departure-cap-fraction=1":    {1_000_000, 0, ""},
		"--departure-cap-fraction=1.1":  {err: "--departure-cap-fraction"},
		"--departure-cap-fraction=-0.1": {err: "--departure-cap-fraction"},
		"--departure-cap-fraction=NaN":  {err: "--departure-cap-fraction"},
		"--departure-cap-fraction=":     {err: "--departure-cap-fraction"},
		"--leader-elect":                {50_000, 15 * time.Second, ""},
	} {
		o := NewOptions()
		err := o.Parse(o.FlagSet("manager"), strings.Fields(args))
		if want.err != "" {
			if err == nil || !strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: %v", args, err)
			}
			continue
		}
		if err != nil || !o.controllers.WipeGuard || o.controllers.DepartureCap != want.limits || o.lease() != want.lease {
			t.Errorf("%s: %+v, lease %s, %v", args, o.controllers.DepartureCap, o.lease(), err)
		}
	}
}
