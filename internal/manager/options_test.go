// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
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
		"--runtime-extension=on":                          "--runtime-extension=on: must be enabled or disabled",
		"--runtime-extension-url=https://192.0.2.1:9443":  "",
		"--runtime-extension-url=http://192.0.2.1:9443":   "--runtime-extension-url=http://192.0.2.1:9443: must be https",
		"--runtime-extension-url=https://me:pw@192.0.2.1": "--runtime-extension-url=https://me:pw@192.0.2.1: must be https",
		"--sync-period=0s":                                "--sync-period=0s: must be positive",
		"--leader-elect-renew-deadline=1m":                "--leader-elect-renew-deadline=1m0s: must be shorter than --leader-elect-lease-duration=15s",
	}
	for arg, want := range cases {
		t.Run(arg, func(t *testing.T) {
			o, fs := NewOptions(), pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.AddFlags(fs)
			if err := fs.Parse(strings.Fields(arg)); err != nil {
				t.Fatal(err)
			}
			err := o.Validate()
			if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("got %v, want %s…", err, want)
			}
		})
	}
}
