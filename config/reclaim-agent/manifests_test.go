// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	manifests "github.com/finos/cluster-api-addon-provider-5spot/config/reclaim-agent"
)

func TestPollingTakesRightsAwayAndLeavesTheRest(t *testing.T) {
	listening, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	polling, err := manifests.Polling(listening)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range polling {
		changed := !reflect.DeepEqual(u, listening[i])
		if changed != (u.GetKind() == "DaemonSet") {
			t.Errorf("%s %s is changed: %t", u.GetKind(), u.GetName(), changed)
		}
		if !changed {
			continue
		}
		text, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, right := range []string{"NET_ADMIN", "hostNetwork", "hostPort", "hostIP"} {
			if strings.Contains(string(text), `"`+right+`"`) {
				t.Errorf("it still has %s: %s", right, text)
			}
		}
	}
}

// TestHoldingChangesOnlyWhatAHoldNeeds compares all objects of both detectors, with and without a hold.
func TestHoldingChangesOnlyWhatAHoldNeeds(t *testing.T) {
	listening, err := manifests.Objects()
	if err != nil {
		t.Fatal(err)
	}
	polling, err := manifests.Polling(listening)
	if err != nil {
		t.Fatal(err)
	}
	for name, before := range map[string][]*unstructured.Unstructured{"netlink": listening, "poll": polling} {
		holding, err := manifests.Holding(before)
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range holding {
			u, before := text(t, u), text(t, before[i])
			type change struct{ kind, with, without string }
			changes := []change{
				{"ValidatingAdmissionPolicy", `"expression":"true","name":"hold"`, `"expression":"false","name":"hold"`},
				{"DaemonSet", `{"name":"CGROUP_ROOT","value":"/host/cgroup"},`, ``},
				{"DaemonSet", `{"mountPath":"/host/cgroup","name":"cgroup"},`, ``},
				{"DaemonSet", `{"hostPath":{"path":"/sys/fs/cgroup","type":"Directory"},"name":"cgroup"},`, ``},
			}
			if name == "poll" { // Only user 0 may write to the files. The host port excludes a second agent.
				changes = append(changes, change{"DaemonSet", `"runAsUser":0`, `"runAsNonRoot":true,"runAsUser":65532`},
					change{"DaemonSet", `"hostIP":"127.0.0.1","hostPort":9797,`, ``})
			}
			for _, change := range changes {
				if strings.Contains(u, `"kind":"`+change.kind+`"`) {
					if !strings.Contains(u, change.with) {
						t.Errorf("%s: %s is missing in %s", name, change.with, u)
					}
					u = strings.Replace(u, change.with, change.without, 1)
				}
			}
			if u != before {
				t.Errorf("%s: more differs:\n-%s\n+%s", name, before, u)
			}
		}
	}
}

func text(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
