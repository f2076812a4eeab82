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

// container is the name that clusterctl requires for the manager's container.
const container = "manager"

// namespacedName is the form of --pod.
var namespacedName = regexp.MustCompile(`^[^/]+/[^/]+$`)

// installedImage returns the image of a program that is installed in workload clusters. It is the requested
// one, otherwise the manager's own image, which contains all programs. It is empty if the manager does not run
// in a pod. With image mirrors, clusterctl is configured only for the manager's image.
func installedImage(ctx context.Context, r client.Reader, ofManager, requested string) (string, error) {
	if requested != "" || ofManager == "" {
		return requested, nil
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
