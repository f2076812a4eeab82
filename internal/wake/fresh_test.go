// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/wake"
)

func TestACacheThatIsLateIsWaitedFor(t *testing.T) {
	var f wake.Freshness
	var req, other ctrl.Request
	req.Name, other.Name = "box", "other"
	if wait := f.Wait(req, "1"); wait != 0 {
		t.Errorf("an object that we never wrote may be worked with, not after %v", wait)
	}
	f.Wrote(req, "1", "1")
	if wait := f.Wait(req, "1"); wait != 0 {
		t.Errorf("a look that wrote nothing leaves the version as good as it was, not after %v", wait)
	}
	f.Wrote(req, "1", "3")
	wants := []string{"50ms", "100ms", "200ms", "400ms", "800ms", "1.6s", "2s", "2s"}
	for _, want := range wants {
		if wait := f.Wait(req, "1"); wait.String() != want {
			t.Errorf("waits %v for a late cache, want %s: a busy server is asked less and less", wait, want)
		}
	}
	if wait := f.Wait(other, "1"); wait != 0 {
		t.Errorf("another object does not wait, not %v", wait)
	}
	if wait := f.Wait(req, "2"); wait != 0 {
		t.Errorf("any other version is news, not after %v", wait)
	}
	f.Wrote(req, "2", "3")
	f.Forget(req)
	if wait := f.Wait(req, "2"); wait != 0 {
		t.Errorf("who is gone is forgotten, not after %v", wait)
	}
}
