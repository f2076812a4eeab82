// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// clusterPath returns the API path of a Cluster.
func clusterPath(namespace, name string) string {
	return "/apis/cluster.x-k8s.io/v1beta2/namespaces/" + namespace + "/clusters/" + name
}

func TestHoldDepartures(t *testing.T) {
	t.Parallel()
	object := func(namespace, name string) map[string]any {
		return map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": map[string]any{"namespace": namespace, "name": name}}
	}
	held := func(namespace, name string) string {
		return name + ": its departures are held. Owners' requests and kill switches are served, and departures that have started go on. " +
			"To end this: kubectl 5spot -n " + namespace + " release-departures " + name + "\n"
	}
	const (
		released = ": its departures are released: machines that have to leave start to, within the departure cap.\n"
		sent     = "kubectl-5spot: map[metadata:map[annotations:map[5spot.finos.org/hold-departures:"
		wrong    = "error: give the names of Clusters, or --all for all of the namespace, or -A for all of all namespaces\n"
	)
	cases := map[string]struct {
		reason  string
		args    []string
		want    result
		written []string
	}{
		"One":      {"", []string{"hold-departures", "prod", "--reason", "INC-12"}, result{Out: held("farm", "prod")}, []string{sent + "INC-12]]]"}},
		"NoReason": {"A stop must not take long to type.", []string{"hold-departures", "prod"}, result{Out: held("farm", "prod")}, []string{sent + "]]]"}},
		"OneLine": {
			"The reason is part of a condition.",
			[]string{"hold-departures", "prod", "--reason", "a\nb"},
			result{Out: held("farm", "prod")},
			[]string{sent + "a b]]]"},
		},
		"Release":   {"", []string{"release-departures", "prod"}, result{Out: "prod" + released}, []string{sent + "<nil>]]]"}},
		"Namespace": {"", []string{"hold-departures", "--all"}, result{Out: held("farm", "lab") + held("farm", "prod")}, []string{sent + "]]]", sent + "]]]"}},
		"Every": {
			"",
			[]string{"release-departures", "-A"},
			result{Out: "prod" + released + "spare" + released},
			[]string{sent + "<nil>]]]", sent + "<nil>]]]"},
		},
		"SomeExist": {
			"A name that is wrong does not keep the others from being held.",
			[]string{"hold-departures", "mars", "prod"},
			result{Out: held("farm", "prod"), Err: "error: changing Cluster mars: scheduledmachines.5spot.finos.org \"mars\" not found in namespace farm: for another, add -n NAMESPACE\n", Code: 1},
			[]string{sent + "]]]"},
		},
		"None":   {"All of them must be meant.", []string{"hold-departures"}, result{Err: wrong, Code: 2}, nil},
		"AndAll": {"", []string{"hold-departures", "prod", "--all"}, result{Err: wrong, Code: 2}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := func(objects ...any) map[string]any {
				return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": objects}
			}
			lab, prod, spare := object("farm", "lab"), object("farm", "prod"), object("barn", "spare")
			server := api{objects: map[string]any{
				clusterPath("farm", "lab"): lab, clusterPath("farm", "prod"): prod, clusterPath("barn", "spare"): spare,
				"/apis/cluster.x-k8s.io/v1beta2/namespaces/farm/clusters": list(lab, prod),
				"/apis/cluster.x-k8s.io/v1beta2/clusters":                 list(prod, spare),
			}}
			got := run("", append(tc.args, server.serve(t))...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.written, server.patches); diff != "" {
				t.Errorf("%s written: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
