// SPDX-License-Identifier: Apache-2.0

package scheduledmachine_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// row returns the columns of the ScheduledMachine that kubectl get shows.
func (w *world) row(query string) map[string]any {
	w.Helper()
	c, err := rest.HTTPClientFor(server.Config)
	w.Must(err)
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet,
		strings.TrimSuffix(server.Config.Host, "/")+"/apis/5spot.finos.org/v1alpha1/namespaces/"+w.sm.Namespace+"/scheduledmachines"+query, nil)
	w.Must(err)
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := c.Do(req)
	w.Must(err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	w.Must(err)
	var table metav1.Table
	w.Must(json.Unmarshal(body, &table))
	if len(table.Rows) == 0 {
		return nil
	}
	row := map[string]any{}
	for i, c := range table.ColumnDefinitions {
		if c.Name != "Age" {
			row[c.Name] = table.Rows[0].Cells[i]
		}
	}
	return row
}

// TestPrinterColumns checks the printer columns. Most people see no other status of a machine.
func TestPrinterColumns(t *testing.T) {
	w := newWorld(t, func(sm *v1alpha1.ScheduledMachine) {
		sm.Spec.Schedule.DaysOfWeek, sm.Spec.Schedule.HoursOfDay = []string{"mon - fri", "sun"}, []string{"9-17"}
	})
	w.clock.SetTime(monday.Add(time.Hour))
	w.settle()
	want := map[string]any{
		"Name": "box", "Cluster": w.sm.Spec.ClusterName, "Phase": "Active", "Ready": "False", "InSchedule": true, "Enabled": true, "Paused": "False",
		"Node": nil, "Next": "closes 2025-01-20T18:00:00Z", "Days": "mon-fri,sun", "Hours": "9-17", "TZ": "UTC", "KillSwitch": false,
	}
	check := func(station string) {
		t.Helper()
		got := w.row("")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", station, diff)
		}
	}
	check("a machine without a Node is Active, and not ready")

	w.running()
	want["Ready"], want["Node"] = "True", "box-node"
	check("running")

	w.Edit(w.sm, func() { w.sm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	w.reconcile()
	want["Paused"] = "True"
	check("paused")

	w.Edit(w.sm, func() { delete(w.sm.Annotations, clusterv1.PausedAnnotation) })
	w.settle()
	w.Must(w.Client.Delete(w.Context(), w.sm))
	w.settle()
	want["Paused"], want["Phase"], want["Ready"], want["Next"] = "False", "ShuttingDown", "False", "none: being deleted"
	check("nothing opens or closes any more")
}

func TestMachinesAreSelectedByCluster(t *testing.T) {
	w := newWorld(t, nil)
	if w.row("?fieldSelector=spec.clusterName%3D"+w.sm.Spec.ClusterName) == nil || w.row("?fieldSelector=spec.clusterName%3Dother") != nil {
		t.Error("spec.clusterName does not select")
	}
}
