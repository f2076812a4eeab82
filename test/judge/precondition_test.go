// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestPrecondition(t *testing.T) {
	bare := func(r *judge.Record) { r.Sent.UID = "" }
	judged(t, judge.Precondition, map[string]ruleCase{
		"UID": {
			reason:  "Another object of the name is a conflict.",
			records: []judge.Record{by(manager, "patch", lab, "m"), by(manager, "delete", infra, "i"), by(manager, "delete", node, "n")},
			judged:  3,
		},
		"ResourceVersion": {
			reason:  "It names the object, and its state.",
			records: []judge.Record{with(by(manager, "patch", node, "n"), bare, func(r *judge.Record) { r.Sent.ResourceVersion = "7" })},
			judged:  1,
		},
		"NameOnly": {
			reason:  "It would hit whatever has the name now.",
			records: []judge.Record{with(by(manager, "delete", lab, "m"), bare)},
			judged:  1, broken: []string{"delete names the object by name only"},
		},
		"WorkloadCluster": {
			reason:  "There the manager is whoever the kubeconfig says, and shows by its program.",
			records: []judge.Record{with(by("kubernetes-admin", "patch", node, "n"), bare, func(r *judge.Record) { r.Program = "manager/v1 5spot-controller-manager (linux/amd64)" })},
			judged:  1, broken: []string{"patch names the object by name only"},
		},
		"Creation": {
			reason:  "What does not exist has no UID; what is applied creates, too.",
			records: []judge.Record{with(by(manager, "create", infra, "i"), bare, created), with(by(manager, "patch", lab, "m"), bare, created)},
		},
		"Refused": {
			reason:  "It hit nothing.",
			records: []judge.Record{with(by(manager, "patch", lab, "m"), bare, refused)},
		},
		"Others": {
			reason:  "What Cluster API does is its own.",
			records: []judge.Record{with(by(core, "patch", lab, "m"), bare), with(by(manager, "patch", configMap, "c"), bare)},
		},
		"Unlogged": {
			reason:  "What cannot be read cannot be acquitted.",
			records: []judge.Record{with(by(manager, "patch", lab, "m"), unlogged)},
			judged:  1, broken: []string{"the log has no body of this request"},
		},
	})
}
