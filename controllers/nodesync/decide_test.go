// SPDX-License-Identifier: Apache-2.0

package nodesync_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/finos/cluster-api-addon-provider-5spot/controllers/nodesync"
)

func TestDecideInstall(t *testing.T) {
	cases := map[string]struct {
		reason string
		facts  nodesync.InstallFacts
		want   nodesync.Verdict
	}{
		"Absent":           {"Somebody asks for the agent.", nodesync.InstallFacts{Wanted: true}, nodesync.Install},
		"NobodyAsks":       {"A Cluster without a user is left alone.", nodesync.InstallFacts{}, nodesync.Keep},
		"Settled":          {"What has not changed is not written.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Ours, InstalledBefore: true, AsLeft: true}, nodesync.Keep},
		"Drift":            {"What changed is made again what it should be.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Ours, InstalledBefore: true}, nodesync.Repair},
		"Restarted":        {"What changed while nobody looked is not known.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Ours}, nodesync.Repair},
		"Foreign":          {"Somebody else's object is never touched.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Foreign}, nodesync.Refuse},
		"ForeignNamespace": {"A Namespace can be shared.", nodesync.InstallFacts{Wanted: true, Shared: true, Presence: nodesync.Foreign}, nodesync.Keep},
		"TakenOverOnce":    {"A restored management cluster names its Clusters as it likes.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Elsewhere}, nodesync.Repair},
		"NoFight":          {"Two Clusters of one API server do not take turns.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Elsewhere, InstalledBefore: true}, nodesync.Keep},
		"Leaving":          {"What is being deleted is waited for.", nodesync.InstallFacts{Wanted: true, Presence: nodesync.Ours, Leaving: true}, nodesync.Keep},
		"LastUserLeft":     {"Nothing of ours stays.", nodesync.InstallFacts{Presence: nodesync.Ours, InstalledBefore: true, AsLeft: true}, nodesync.Uninstall},
		"LastUserLeftTwice": {
			"A deletion is asked for once.",
			nodesync.InstallFacts{Presence: nodesync.Ours, Leaving: true},
			nodesync.Keep,
		},
		"NamespaceStays":  {"Others may have put something into it.", nodesync.InstallFacts{Shared: true, Presence: nodesync.Ours}, nodesync.Keep},
		"ForeignStays":    {"Somebody else's object is never removed.", nodesync.InstallFacts{Presence: nodesync.Foreign}, nodesync.Keep},
		"ElsewhereStays":  {"Another Cluster still uses it.", nodesync.InstallFacts{Presence: nodesync.Elsewhere}, nodesync.Keep},
		"NothingToRemove": {"Gone is gone.", nodesync.InstallFacts{InstalledBefore: true}, nodesync.Keep},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := nodesync.DecideInstall(tc.facts); got != tc.want {
				t.Errorf("%s\ngot %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDecideNode(t *testing.T) {
	type writes = []nodesync.Write
	cases := map[string]struct {
		reason string
		facts  nodesync.NodeFacts
		want   writes
	}{
		"Joins":          {"The record comes before the label.", nodesync.NodeFacts{Wanted: true, Exists: true}, writes{nodesync.MakeConfigMap, nodesync.AddLabel}},
		"StoppedBetween": {"What is missing is made up for.", nodesync.NodeFacts{Wanted: true, Exists: true, ConfigMap: nodesync.Ours, Current: true}, writes{nodesync.AddLabel}},
		"Settled":        {"Nothing is written.", nodesync.NodeFacts{Wanted: true, Exists: true, Labelled: true, ConfigMap: nodesync.Ours, Current: true}, nil},
		"Edited":         {"Other programs, or somebody's edit.", nodesync.NodeFacts{Wanted: true, Exists: true, Labelled: true, ConfigMap: nodesync.Ours}, writes{nodesync.MendConfigMap}},
		"Moved":          {"The Cluster has another name now.", nodesync.NodeFacts{Wanted: true, Exists: true, Labelled: true, ConfigMap: nodesync.Elsewhere}, writes{nodesync.MendConfigMap}},
		"Foreign":        {"Somebody else's ConfigMap is not touched, nor is the Node opted in to it.", nodesync.NodeFacts{Wanted: true, Exists: true, ConfigMap: nodesync.Foreign}, writes{nodesync.RefuseConfigMap}},
		"NoNode":         {"There is nothing to label, and nothing for the ConfigMap to go with.", nodesync.NodeFacts{Wanted: true}, nil},
		"Cleared":        {"The record goes last.", nodesync.NodeFacts{Exists: true, Labelled: true, ConfigMap: nodesync.Ours, Current: true}, writes{nodesync.DropLabel, nodesync.DeleteConfigMap}},
		"ClearedBetween": {"What is left is taken away.", nodesync.NodeFacts{Exists: true, ConfigMap: nodesync.Ours}, writes{nodesync.DeleteConfigMap}},
		"NodeGone":       {"The ConfigMap does not stay behind.", nodesync.NodeFacts{ConfigMap: nodesync.Ours}, writes{nodesync.DeleteConfigMap}},
		"LabelOfOthers":  {"A label without our record is somebody else's.", nodesync.NodeFacts{Exists: true, Labelled: true}, nil},
		"RecordOfOthers": {"So is their ConfigMap.", nodesync.NodeFacts{Exists: true, Labelled: true, ConfigMap: nodesync.Foreign}, nil},
		"Emergency":      {"An emergency is not disturbed by taking away.", nodesync.NodeFacts{Held: true, Exists: true, Labelled: true, ConfigMap: nodesync.Ours}, nil},
		"EmergencyJoins": {"Nor by adding.", nodesync.NodeFacts{Held: true, Wanted: true, Exists: true}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, nodesync.DecideNode(tc.facts)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
