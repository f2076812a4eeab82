// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/kinds"
)

// Names of Couchbase's operator.
const (
	couchbaseClusterLabel = "couchbase_cluster"
	inPlaceUpgrade        = "InPlaceUpgrade"
)

var couchbaseCluster = schema.GroupVersionKind{Group: "couchbase.com", Version: "v2", Kind: "CouchbaseCluster"}

// trackingOf returns the object that gets the mark for tools that read the marks of Couchbase's eviction reschedule
// hook, nil for none. The caller shows an error as a warning: no decision depends on the mark.
func (e *Evictor) trackingOf(ctx context.Context, s *scope) (*evictionv1.TrackingReference, error) {
	ref := &evictionv1.TrackingReference{Type: s.policy.Tracking}
	switch s.policy.Tracking {
	case evictionv1.TrackingNamespace:
		ref.Name = s.pod.Namespace
	case evictionv1.TrackingCouchbaseCluster:
		if ref.Name = s.pod.Labels[couchbaseClusterLabel]; ref.Name == "" {
			return nil, fmt.Errorf("the pod is not tracked: it has no label %s, by which %s finds its CouchbaseCluster", couchbaseClusterLabel, s.policy)
		}
		cluster := &unstructured.Unstructured{}
		cluster.SetGroupVersionKind(couchbaseCluster)
		if err := e.Live.Get(ctx, client.ObjectKey{Namespace: s.pod.Namespace, Name: ref.Name}, cluster); err != nil {
			return nil, fmt.Errorf("the pod is not tracked: reading CouchbaseCluster %s: %w", ref.Name, err)
		}
		if process, _, _ := unstructured.NestedString(cluster.Object, "spec", "upgradeProcess"); process != inPlaceUpgrade {
			return nil, nil
		}
	default:
		return nil, nil
	}
	if problems := validation.IsQualifiedName(trackingKey(s.pod.Namespace, s.pod.Name)); len(problems) > 0 {
		return nil, fmt.Errorf("the pod is not tracked: the key %s: %s", trackingKey(s.pod.Namespace, s.pod.Name), problems[0])
	}
	return ref, nil
}

func trackingKey(namespace, pod string) string {
	return evictionv1.TrackingPrefix + namespace + "." + pod
}

// track sets or removes the tracking mark of a request, if it has one. A missing object is not an error.
func (e *Evictor) track(ctx context.Context, r *evictionv1.RescheduleRequest, wanted bool) error {
	ref := r.Spec.Tracking
	if ref == nil {
		return nil
	}
	kind, key := couchbaseCluster, client.ObjectKey{Namespace: r.Namespace, Name: ref.Name}
	if ref.Type == evictionv1.TrackingNamespace {
		kind, key = corev1.SchemeGroupVersion.WithKind("Namespace"), client.ObjectKey{Name: ref.Name}
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind)
	if err := e.Live.Get(ctx, key, obj); err != nil {
		if kinds.NoObject(err) {
			return nil
		}
		return fmt.Errorf("the pod is not tracked: reading %s %s: %w", kind.Kind, ref.Name, err)
	}
	before := obj.DeepCopy()
	if wanted {
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, trackingKey(r.Namespace, r.Spec.Pod.Name), "true")
	} else {
		delete(obj.Annotations, trackingKey(r.Namespace, r.Spec.Pod.Name))
	}
	if err := e.Write.Patch(ctx, obj, before); err != nil {
		return fmt.Errorf("the pod is not tracked: %w", err)
	}
	return nil
}
