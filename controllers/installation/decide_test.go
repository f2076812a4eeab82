// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/installation"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/installed"
)

func TestDecideInstall(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  installation.InstallFacts
		want   installation.Verdict
	}{
		"Absent":           {"A ScheduledMachine needs the agent.", installation.InstallFacts{Wanted: true}, installation.Install},
		"Unused":           {"A Cluster without a user is left alone.", installation.InstallFacts{}, installation.Keep},
		"Settled":          {"What has not changed is not written.", installation.InstallFacts{Wanted: true, Presence: installed.Ours, InstalledBefore: true, AsLeft: true}, installation.Keep},
		"Drift":            {"What changed is made again what it should be.", installation.InstallFacts{Wanted: true, Presence: installed.Ours, InstalledBefore: true}, installation.Repair},
		"Restarted":        {"It is unknown what changed while no manager ran.", installation.InstallFacts{Wanted: true, Presence: installed.Ours}, installation.Repair},
		"Foreign":          {"Another writer's object is never changed.", installation.InstallFacts{Wanted: true, Presence: installed.Foreign}, installation.Refuse},
		"ForeignNamespace": {"A Namespace can be shared.", installation.InstallFacts{Wanted: true, Shared: true, Presence: installed.Foreign}, installation.Keep},
		"TakenOverOnce":    {"A restored management cluster names its Clusters as it likes.", installation.InstallFacts{Wanted: true, Presence: installed.Elsewhere}, installation.Repair},
		"NoFight":          {"Two Clusters of one API server do not take turns.", installation.InstallFacts{Wanted: true, Presence: installed.Elsewhere, InstalledBefore: true}, installation.Keep},
		"Leaving":          {"What is being deleted is waited for.", installation.InstallFacts{Wanted: true, Presence: installed.Ours, Leaving: true}, installation.Keep},
		"LastUserLeft":     {"Nothing of ours stays.", installation.InstallFacts{Presence: installed.Ours, InstalledBefore: true, AsLeft: true}, installation.Uninstall},
		"LastUserLeftTwice": {
			"A deletion is asked for once.",
			installation.InstallFacts{Presence: installed.Ours, Leaving: true},
			installation.Keep,
		},
		"NamespaceStays":  {"Others may have put something into it.", installation.InstallFacts{Shared: true, Presence: installed.Ours}, installation.Keep},
		"ForeignStays":    {"Another writer's object is never removed.", installation.InstallFacts{Presence: installed.Foreign}, installation.Keep},
		"ElsewhereStays":  {"Another Cluster still uses it.", installation.InstallFacts{Presence: installed.Elsewhere}, installation.Keep},
		"NothingToRemove": {"Gone is gone.", installation.InstallFacts{InstalledBefore: true}, installation.Keep},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := installation.DecideInstall(tc.facts); got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
