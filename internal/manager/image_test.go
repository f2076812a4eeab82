// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestWhatIsInstalledHasTheImageOfTheManager(t *testing.T) {
	pod := func(name, container string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "5spot-system", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy", Image: "proxy:v1"}, {Name: container, Image: "mirror.example/5spot:v1"}}},
		}
	}
	reader := fake.NewClientBuilder().WithObjects(pod("ours", "manager"), pod("strange", "other")).Build()
	for name, tc := range map[string]struct{ reason, asked, pod, want, fails string }{
		"Derived":   {"An image that clusterctl rewrote holds for the agent too.", "", "5spot-system/ours", "mirror.example/5spot:v1", ""},
		"Asked":     {"What is asked for counts.", "agent:v2", "5spot-system/ours", "agent:v2", ""},
		"NoPod":     {"A process of its own leaves it to the manifests.", "", "", "", ""},
		"Gone":      {"A pod that cannot be read is named.", "", "5spot-system/gone", "", "5spot-system/gone, named by --pod"},
		"Container": {"And one without a manager.", "", "5spot-system/strange", "", "has no container manager"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := installedImage(t.Context(), reader, tc.pod, tc.asked)
			if got != tc.want || (err == nil) != (tc.fails == "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%s\ngot %q, %v; want %q, %q", tc.reason, got, err, tc.want, tc.fails)
			}
		})
	}
}
