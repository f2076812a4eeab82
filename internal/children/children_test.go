// SPDX-License-Identifier: Apache-2.0

package children_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/children"
)

func TestNames(t *testing.T) {
	want := children.Names{Bootstrap: "box-bootstrap", Infrastructure: "box-infra", Machine: "box-machine"}
	if diff := cmp.Diff(want, children.NamesOf("box")); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestNamesAreLabelsAndTellLongOnesApart(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		na, nb := children.NamesOf(a), children.NamesOf(b)
		for _, n := range []string{na.Bootstrap, na.Infrastructure, na.Machine} {
			if msgs := validation.IsDNS1123Label(n); len(msgs) > 0 {
				t.Fatalf("%s: %v", n, msgs)
			}
		}
		if a != b && (na.Machine == nb.Machine || na.Bootstrap == nb.Bootstrap || na.Infrastructure == nb.Infrastructure) {
			t.Fatalf("%s and %s share a name: %+v", a, b, na)
		}
	})
}

func TestLongNamesKeepTheirBeginning(t *testing.T) {
	long := strings.Repeat("a", 62)
	n := children.NamesOf(long + "b").Machine
	if len(n) != 63 || !strings.HasPrefix(n, "aaaa") || !strings.HasSuffix(n, "-machine") || n == children.NamesOf(long+"c").Machine {
		t.Errorf("%q", n)
	}
}

func machineOf(change func(*v1alpha1.ScheduledMachine)) *v1alpha1.ScheduledMachine {
	sm := &v1alpha1.ScheduledMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "box", UID: "u1"}}
	sm.Spec.ClusterName = "lab"
	sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig"}
	sm.Spec.InfrastructureSpec = v1alpha1.EmbeddedObject{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "DevMachine"}
	if change != nil {
		change(sm)
	}
	return sm
}

// made is the time of creation of live.
var made = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

// live returns the Machine that was made from sm.
func live(t *testing.T, sm *v1alpha1.ScheduledMachine) *clusterv1.Machine {
	t.Helper()
	desired, err := children.Machine(sm, "v1.36.3", made, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &clusterv1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOutdated(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   func(*v1alpha1.ScheduledMachine)
		drift  func(*clusterv1.Machine)
		want   bool
	}{
		"AsMade":         {"Nothing is to be applied.", nil, nil, false},
		"LabelAdded":     {"Metadata follows the spec at once.", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.MachineTemplate.Labels = map[string]string{"a": "b"} }, nil, true},
		"LabelLost":      {"A client removed our label.", nil, func(m *clusterv1.Machine) { delete(m.Labels, v1alpha1.ScheduledMachineLabel) }, true},
		"TimeoutChanged": {"It counts for the next drain.", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeDrainTimeout = "1h" }, nil, true},
		"TimeoutDrifted": {"A client edited it.", nil, func(m *clusterv1.Machine) { m.Spec.Deletion.NodeDrainTimeoutSeconds = new(int32(7)) }, true},
		"OwnerLost":      {"Without an owner, a MachineSet may adopt it.", nil, func(m *clusterv1.Machine) { m.OwnerReferences = nil }, true},
		"OthersMayAdd":   {"Labels and annotations of others are theirs.", nil, func(m *clusterv1.Machine) { m.Labels["x"], m.Annotations["y"] = "1", "2" }, false},
		"TemplateNamed": {
			"It applies at the next window, too.",
			func(sm *v1alpha1.ScheduledMachine) {
				sm.Spec.BootstrapSpec = v1alpha1.EmbeddedObject{}
				sm.Spec.BootstrapTemplateRef = v1alpha1.TemplateReference{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "OtherTemplate", Name: "x"}
			}, nil, false,
		},
		"EmbeddedEdited": {"It applies at the next window.", func(sm *v1alpha1.ScheduledMachine) { sm.Spec.BootstrapSpec.Kind = "Other" }, nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sm := machineOf(nil)
			m := live(t, sm)
			if tc.spec != nil {
				tc.spec(sm)
			}
			if tc.drift != nil {
				tc.drift(m)
			}
			desired, err := children.Machine(sm, "", made.Add(time.Hour), m)
			if err != nil {
				t.Fatal(err)
			}
			if got := children.Outdated(m, desired); got != tc.want {
				t.Errorf("%s\nOutdated = %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNoDrainIsNotDrainForEver(t *testing.T) {
	m := live(t, machineOf(func(sm *v1alpha1.ScheduledMachine) { sm.Spec.NodeDrainTimeout = "0s" }))
	if _, ok := m.Annotations[clusterv1.ExcludeNodeDrainingAnnotation]; !ok || m.Spec.Deletion.NodeDrainTimeoutSeconds != nil {
		t.Errorf("to Cluster API a timeout of zero waits for ever: %+v %+v", m.Annotations, m.Spec.Deletion)
	}
}
