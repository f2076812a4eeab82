// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

// annotated returns a Machine with annotations.
func annotated(keys ...string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "box-machine", Annotations: map[string]string{}}}
	for _, key := range keys {
		m.Annotations[key] = ""
	}
	return m
}

// TestARemovalWaitsForForeignHooks has another owner's hook that protects data. The infrastructure stays until
// the hook is removed, unless the manager bypasses such hooks.
func TestARemovalWaitsForForeignHooks(t *testing.T) {
	t.Parallel()
	drain, terminate := clusterv1.PreDrainDeleteHookAnnotationPrefix+"/a", clusterv1.PreTerminateDeleteHookAnnotationPrefix+"/b"
	for name, tc := range map[string]struct {
		reason  string
		machine *clusterv1.Machine
		want    []string
	}{
		"NoMachine":    {"There is nothing to put a hook on.", nil, nil},
		"NoHook":       {"Other annotations are no hooks.", annotated("example.org/a"), nil},
		"Ours":         {"We do not wait for ourselves.", annotated(v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation), nil},
		"PreDrain":     {"Its owner has work to do before the drain.", annotated(drain), []string{drain}},
		"PreTerminate": {"Its owner has work to do before the end.", annotated(terminate), []string{terminate}},
		"Both":         {"In one order, for people.", annotated(terminate, drain, v1alpha1.PreDrainHookAnnotation), []string{drain, terminate}},
	} {
		infra := &unstructured.Unstructured{}
		s := &children.Set{Machine: tc.machine, Infrastructure: infra}
		if got := s.WaitsFor(children.HonourHooks); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s\ngot %v, want %v", name, tc.reason, got, tc.want)
		}
		if last := s.NextToDelete(children.HonourHooks); (last == infra) != (len(tc.want) == 0) {
			t.Errorf("%s: %s\nthe infrastructure goes: %t", name, tc.reason, last == infra)
		}
		if got := s.WaitsFor(children.BypassHooks); got != nil || s.NextToDelete(children.BypassHooks) != infra {
			t.Errorf("%s: bypassed, it waits for %v", name, got)
		}
	}
}

// TestNextToDelete checks that the bootstrap config is deleted only after the infrastructure is
// known to be gone. Providers read it while they clean up a host.
func TestNextToDelete(t *testing.T) {
	t.Parallel()
	infra, bootstrap := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	for name, tc := range map[string]struct {
		reason string
		set    children.Set
		want   *unstructured.Unstructured
	}{
		"All":       {"The Machine takes its bootstrap config along.", children.Set{Machine: annotated(), Infrastructure: infra, Bootstrap: bootstrap}, infra},
		"Machine":   {"It does so without infrastructure, too.", children.Set{Machine: annotated(), Bootstrap: bootstrap}, nil},
		"NoMachine": {"Nothing else deletes it.", children.Set{Infrastructure: infra, Bootstrap: bootstrap}, infra},
		"Bootstrap": {"It is what is left.", children.Set{Bootstrap: bootstrap}, bootstrap},
		"Unknown":   {"What cannot be read is not gone.", children.Set{Bootstrap: bootstrap, InfrastructureUnknown: true}, nil},
		"Nothing":   {"There is nothing.", children.Set{}, nil},
	} {
		if got := tc.set.NextToDelete(children.HonourHooks); got != tc.want {
			t.Errorf("%s: %s\ngot %v", name, tc.reason, got)
		}
	}
}

// TestWithdrawRemovesOnlyItsAnnotations checks that Withdraw removes only annotations of the departure, whatever the
// record contains.
func TestWithdrawRemovesOnlyItsAnnotations(t *testing.T) {
	t.Parallel()
	theirs := clusterv1.PreTerminateDeleteHookAnnotationPrefix + "/backup"
	m := annotated(theirs, clusterv1.ExcludeNodeDrainingAnnotation)
	added := children.Expedite(m)
	if slices.Contains(added, clusterv1.ExcludeNodeDrainingAnnotation) || len(added) != 2 {
		t.Errorf("added %v: a person had put one of three there", added)
	}
	d := v1alpha1.NewDeparture(v1alpha1.KilledByPerson, time.Now(), "1")
	d.Skips = slices.Concat(added, []string{theirs})
	children.Record(m, d)
	children.Withdraw(m)
	var left []string
	for key := range m.Annotations {
		left = append(left, key)
	}
	slices.Sort(left)
	if want := []string{theirs, clusterv1.ExcludeNodeDrainingAnnotation, v1alpha1.PreDrainHookAnnotation, v1alpha1.PreTerminateHookAnnotation}; !slices.Equal(left, slices.Sorted(slices.Values(want))) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
