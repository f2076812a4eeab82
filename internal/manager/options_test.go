// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
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
		"--runtime-extension=on":                          "--runtime-extension=on: must be one of [enabled disabled elsewhere]",
		"--runtime-extension=elsewhere":                   "",
		"--runtime-extension-url=https://192.0.2.1:9443":  "",
		"--runtime-extension-url=http://192.0.2.1:9443":   "--runtime-extension-url=http://192.0.2.1:9443: must be https",
		"--runtime-extension-url=https://me:pw@192.0.2.1": "--runtime-extension-url=https://me:pw@192.0.2.1: must be https",
		"--sync-period=0s":                                "--sync-period=0s: must be positive",
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

func TestParseRefusesWhatNobodyFilledIn(t *testing.T) {
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
