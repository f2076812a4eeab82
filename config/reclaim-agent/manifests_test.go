// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"reflect"
	"strings"
	"testing"

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
