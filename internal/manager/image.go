// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// container is what clusterctl wants the manager's container to be called.
const container = "manager"

// namespacedName is how --pod names a pod.
var namespacedName = regexp.MustCompile(`^[^/]+/[^/]+$`)

// installedImage is the image of a program that is installed in workload clusters: the one
// that is asked for, or else the manager's own, which holds all of them. Where the manager is
// not a pod it is empty. Whoever mirrors images tells clusterctl about those of the manager
// only.
func installedImage(ctx context.Context, r client.Reader, ofManager, asked string) (string, error) {
	if asked != "" || ofManager == "" {
		return asked, nil
	}
	namespace, name, _ := strings.Cut(ofManager, "/")
	pod := &corev1.Pod{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return "", fmt.Errorf("reading pod %s, named by --pod: %w", ofManager, err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == container {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("pod %s, named by --pod, has no container %s", ofManager, container)
}
