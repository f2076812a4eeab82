// SPDX-License-Identifier: Apache-2.0

package actuate_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/actuate"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
)

// TestAnAnswerThatIsNotOfTheObject checks that such a response is rejected. An admission webhook may change
// what is created, and an object without our label is not found again.
func TestAnAnswerThatIsNotOfTheObject(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(client.Object)
		says    string
		outcome string
	}{
		"Whole": {func(client.Object) {}, "", "success"},
		"OtherLabels": {func(o client.Object) {
			o.SetLabels(map[string]string{v1alpha1.ScheduledMachineLabel: "box", "team": "a"})
		}, "", "success"},
		"NoUID":        {func(o client.Object) { o.SetUID("") }, "it has no UID", "ack_rejected"},
		"NoLabel":      {func(o client.Object) { o.SetLabels(nil) }, `label 5spot.finos.org/scheduled-machine is "" instead of "box"`, "ack_rejected"},
		"AnotherLabel": {func(o client.Object) { o.GetLabels()[v1alpha1.ScheduledMachineLabel] = "x" }, `is "x" instead of "box"`, "ack_rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			f, out := server.Fixture(t), &bytes.Buffer{}
			c := interceptor.NewClient(f.Client, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					err := c.Create(ctx, obj, opts...)
					tc.change(obj)
					return err
				},
			})
			action := actuate.NewGated(&actuate.Gate{Log: audit.New(out)}, c).For(actuate.Intent{Kind: audit.Join, At: at})
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace(t), Name: "box", Labels: map[string]string{v1alpha1.ScheduledMachineLabel: "box"}}}
			err := action.Create(t.Context(), obj)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if diff := cmp.Diff(tc.outcome, string(lines(t, out)[0].Outcome)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}
