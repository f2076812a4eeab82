// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2/textlogger"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/runtime-extension/handlers/lifecycle"
)

const index = "spec.clusterName"

var noon = time.Date(2025, time.January, 15, 12, 0, 0, 0, time.UTC)

// handlers returns Handlers for these objects, at noon.
func handlers(t *testing.T, objs ...client.Object) *lifecycle.Handlers {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).
		WithIndex(&v1alpha1.ScheduledMachine{}, index, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ScheduledMachine).Spec.ClusterName}
		}).Build()
	return &lifecycle.Handlers{Reader: reader, Clock: clocktesting.NewFakePassiveClock(noon)}
}

// cluster returns a Cluster that was deleted at noon.
func cluster(namespace, name string) clusterv1.Cluster {
	return clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, DeletionTimestamp: &metav1.Time{Time: noon}}}
}

// box returns the ScheduledMachine box in Cluster farm/batch and its Machine. since is when the Machine started to
// leave, if it is not zero.
func box(since time.Time, change func(*v1alpha1.ScheduledMachine)) []client.Object {
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "farm", Name: "box", Annotations: map[string]string{}}}
	sm.Spec.ClusterName = "batch"
	if change != nil {
		change(sm)
	}
	m := machineOf("box")
	if !since.IsZero() {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: since}, []string{clusterv1.MachineFinalizer}
	}
	return []client.Object{sm, m}
}

func machineOf(scheduled string) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "farm", Name: scheduled + "-machine",
		Labels: map[string]string{clusterv1.ClusterNameLabel: "batch", v1alpha1.ScheduledMachineLabel: scheduled},
	}}
}

func killed(sm *v1alpha1.ScheduledMachine) { sm.Spec.KillSwitch = true }

func reclaimed(at ...time.Time) func(*v1alpha1.ScheduledMachine) {
	return func(sm *v1alpha1.ScheduledMachine) {
		sm.Annotations[v1alpha1.EmergencyReclaimAnnotation] = "{}"
		sm.SetReclaimTimes(at)
	}
}

func TestUpgradesAreHeldInAnEmergency(t *testing.T) {
	const held = "waiting for ScheduledMachines that leave in an emergency: box"
	long := noon.Add(-time.Hour)
	for name, tc := range map[string]struct {
		reason   string
		objs     []client.Object
		settings map[string]string
		want     string
	}{
		"NoMachine":    {reason: "A Cluster without borrowed machines is upgraded at once."},
		"Runs":         {reason: "A machine that stays holds nothing.", objs: box(time.Time{}, nil)},
		"Departs":      {reason: "A closing window is no emergency.", objs: box(noon, nil)},
		"Killed":       {reason: "The kill switch is one.", objs: box(noon, killed), want: held},
		"KilledBefore": {reason: "Until ten minutes are over.", objs: box(long, killed)},
		"Reclaimed":    {reason: "An owner's request is one.", objs: box(noon, reclaimed()), want: held},
		"Remembered":   {reason: "Also before the Machine is deleted.", objs: box(time.Time{}, reclaimed(noon)), want: held},
		"Unbegun":      {reason: "What has no beginning would have no end.", objs: box(time.Time{}, reclaimed())},
		"MidDrain":     {reason: "The owner came an hour after the departure began.", objs: box(long, reclaimed(noon)), want: held},
		"Again":        {reason: "Earlier requests do not count.", objs: box(long, reclaimed(long.Add(-time.Hour)))},
		"Off":          {reason: "The setting turns it off.", objs: box(noon, killed), settings: map[string]string{"holdUpgradesDuringEmergency": "false"}},
		"On":           {reason: "And on.", objs: box(noon, killed), settings: map[string]string{"holdUpgradesDuringEmergency": "true"}, want: held},
		"Unreadable":   {reason: "What cannot be read is the default.", objs: box(noon, killed), settings: map[string]string{"holdUpgradesDuringEmergency": "nope"}, want: held},
	} {
		t.Run(name, func(t *testing.T) {
			h := handlers(t, tc.objs...)
			req := &runtimehooksv1.BeforeClusterUpgradeRequest{Cluster: cluster("farm", "batch")}
			req.SetSettings(tc.settings)
			res := &runtimehooksv1.BeforeClusterUpgradeResponse{}
			h.BeforeClusterUpgrade(t.Context(), req, res)
			check(t, tc.reason, res, tc.want)

			workers := &runtimehooksv1.BeforeWorkersUpgradeRequest{Cluster: cluster("farm", "batch")}
			workers.SetSettings(tc.settings)
			also := &runtimehooksv1.BeforeWorkersUpgradeResponse{}
			h.BeforeWorkersUpgrade(t.Context(), workers, also)
			check(t, tc.reason, also, tc.want)
		})
	}
}

func check(t *testing.T, reason string, res runtimehooksv1.RetryResponseObject, want string) {
	t.Helper()
	if res.GetStatus() != runtimehooksv1.ResponseStatusSuccess || res.GetMessage() != want || (res.GetRetryAfterSeconds() > 0) != (want != "") {
		t.Errorf("%s\nwant %q, got %+v", reason, want, res)
	}
	if again := res.GetRetryAfterSeconds(); want != "" && (again < 5 || again > 15) {
		t.Errorf("asks to be asked again in %d s", again)
	}
}

func TestDeletionWaitsForMachines(t *testing.T) {
	others := machineOf("")
	others.Name, others.Labels = "worker", map[string]string{clusterv1.ClusterNameLabel: "batch"}
	for name, tc := range map[string]struct {
		reason  string
		cluster clusterv1.Cluster
		objs    []client.Object
		want    string
	}{
		"Runs":      {"It has not begun to leave.", cluster("farm", "batch"), box(time.Time{}, nil), "waiting for ScheduledMachines to leave: box"},
		"Leaves":    {"It is on its way.", cluster("farm", "batch"), box(noon, killed), "waiting for ScheduledMachines to leave: box"},
		"Orphan":    {"A Machine that outlived its ScheduledMachine.", cluster("farm", "batch"), []client.Object{machineOf("box")}, "waiting for ScheduledMachines to leave: box"},
		"Gone":      {"Nothing is left but the ScheduledMachine.", cluster("farm", "batch"), box(noon, nil)[:1], ""},
		"Others":    {"Other Machines are Cluster API's own.", cluster("farm", "batch"), []client.Object{others}, ""},
		"Elsewhere": {"A Cluster of the same name.", cluster("lab", "batch"), box(noon, nil), ""},
		"Other":     {"Another Cluster.", cluster("farm", "other"), box(noon, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			res := &runtimehooksv1.BeforeClusterDeleteResponse{}
			handlers(t, tc.objs...).BeforeClusterDelete(t.Context(), &runtimehooksv1.BeforeClusterDeleteRequest{Cluster: tc.cluster}, res)
			check(t, tc.reason, res, tc.want)
		})
	}
}

// unreadable makes the cache of h return an error.
func unreadable(h *lifecycle.Handlers) *lifecycle.Handlers {
	h.Reader = interceptor.NewClient(h.Reader.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not started")
		},
	})
	return h
}

// TestAnInitializedControlPlaneIsNoted checks the log message. An error does not stop the Cluster.
func TestAnInitializedControlPlaneIsNoted(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		handlers *lifecycle.Handlers
		cluster  string
		want     string
	}{
		"Joins":      {"One machine is lent to it.", handlers(t, box(time.Time{}, nil)...), "batch", `machines can join" Cluster="farm/batch" machines=1`},
		"Another":    {"None is lent to this one.", handlers(t, box(time.Time{}, nil)...), "other", ""},
		"Unreadable": {"It is of no use to ask again.", unreadable(handlers(t, box(time.Time{}, nil)...)), "batch", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			ctx := ctrl.LoggerInto(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
			res := &runtimehooksv1.AfterControlPlaneInitializedResponse{}
			tc.handlers.AfterControlPlaneInitialized(ctx, &runtimehooksv1.AfterControlPlaneInitializedRequest{Cluster: cluster("farm", tc.cluster)}, res)
			if diff := cmp.Diff(runtimehooksv1.CommonResponse{Status: runtimehooksv1.ResponseStatusSuccess}, res.CommonResponse); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if got := log.String(); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s\nnoted %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestACacheThatCannotBeReadIsAFailure: Cluster API calls again, because it is unknown whether a machine exists.
func TestACacheThatCannotBeReadIsAFailure(t *testing.T) {
	h := unreadable(handlers(t))
	res := &runtimehooksv1.BeforeClusterDeleteResponse{}
	h.BeforeClusterDelete(t.Context(), &runtimehooksv1.BeforeClusterDeleteRequest{Cluster: cluster("farm", "batch")}, res)
	if res.Status != runtimehooksv1.ResponseStatusFailure || res.Message == "" {
		t.Errorf("got %+v", res)
	}
}
