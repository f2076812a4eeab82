// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An outage is a change after which a provider's objects cannot be read as before.
type outage struct {
	begin, end func(*world)
	// blind reports that the infrastructure cannot be read at all. says is the expected message.
	blind bool
	says  string
}

// outages are outages of PlaneMachines.
var outages = map[string]outage{
	// An upgrade of the provider: the next version is served, and the present one no longer.
	"VersionNoLongerServed": {
		begin: func(w *world) {
			w.define(func(crd *apiextensionsv1.CustomResourceDefinition) {
				next(crd)
				crd.Spec.Versions[0].Served = false
			})
		},
		end: (*world).restore,
	},
	"NoVersionServed": {
		begin: func(w *world) {
			w.define(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[0].Served = false })
		},
		end:   (*world).restore,
		blind: true, says: "is not served at the moment",
	},
	// The API server stores another version, and cannot convert the stored objects to it.
	"ConversionWebhookDead": {
		begin: func(w *world) {
			w.define(func(crd *apiextensionsv1.CustomResourceDefinition) {
				next(crd)
				crd.Spec.Versions[0].Storage, crd.Spec.Versions[1].Storage = false, true
				crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
					Strategy: apiextensionsv1.WebhookConverter,
					Webhook: &apiextensionsv1.WebhookConversion{
						ConversionReviewVersions: []string{"v1"},
						ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/convert")},
					},
				}
			})
		},
		end:   (*world).restore,
		blind: true, says: "does its provider's conversion webhook answer?",
	},
	// Discovery fails for the provider's group, and for an unused group.
	"DiscoveryIncomplete": {
		begin: func(w *world) {
			w.must(w.Management.Create(w.step(), dead("v1.other.example.com")))
			w.delegate(deadService())
		},
		end: func(w *world) {
			w.delegate(nil)
			w.must(w.Management.Delete(w.step(), dead("v1.other.example.com")))
		},
		blind: true, says: "cannot be read",
	},
}

// next makes a definition serve one more version with the same schema.
func next(crd *apiextensionsv1.CustomResourceDefinition) {
	version := *crd.Spec.Versions[0].DeepCopy()
	version.Name, version.Storage = "v1beta2", false
	crd.Spec.Versions = append(crd.Spec.Versions, version)
	crd.Labels[clusterv1.GroupVersion.Group+"/v1beta2"] = "v1beta1_v1beta2"
}

func planeMachines() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "planemachines.infrastructure.cluster.x-k8s.io"}}
}

// define changes the definition of PlaneMachines.
func (w *world) define(change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.Helper()
	crd := planeMachines()
	w.must(w.Edit(crd, func() { change(crd) }))
	generation := crd.Generation
	w.until(func() error { // The API server serves a new definition a moment later.
		_, err := shared.Management.Kubectl(w.step(), "get", "--raw", "/apis/infrastructure.cluster.x-k8s.io/v1beta1/planemachines?limit=1")
		if served := err == nil; served != crd.Spec.Versions[0].Served {
			return fmt.Errorf("generation %d is not in effect: %w", generation, err)
		}
		return nil
	})
}

// restore reverts define. Objects that were stored in the other version meanwhile have the same schema.
func (w *world) restore() {
	w.Helper()
	crd := planeMachines()
	w.must(w.Edit(crd, func() {
		crd.Spec.Conversion = nil
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served, crd.Spec.Versions[i].Storage = true, i == 0
		}
	}))
	crd.Status.StoredVersions = []string{"v1beta1"}
	w.must(w.Management.Status().Update(w.step(), crd))
	w.define(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions = crd.Spec.Versions[:1]
		crd.Labels[clusterv1.GroupVersion.Group+"/v1beta2"] = "v1beta1"
	})
}

// dead is an aggregated API whose server is down.
func dead(name string) *unstructured.Unstructured {
	service := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": name[len("v1."):], "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
		"insecureSkipTLSVerify": true, "service": deadService(),
	}}}
	service.SetAPIVersion("apiregistration.k8s.io/v1")
	service.SetKind("APIService")
	service.SetName(name)
	return service
}

func deadService() map[string]any {
	return map[string]any{"namespace": "default", "name": "nobody", "port": int64(443)}
}

// delegate makes another server serve the provider's group. nil is the API server itself, which restores its own object
// by its label.
func (w *world) delegate(service map[string]any) {
	w.Helper()
	group := &unstructured.Unstructured{}
	group.SetAPIVersion("apiregistration.k8s.io/v1")
	group.SetKind("APIService")
	group.SetName("v1beta1.infrastructure.cluster.x-k8s.io")
	w.must(w.Edit(group, func() {
		const managed = "kube-aggregator.kubernetes.io/automanaged"
		spec := group.Object["spec"].(map[string]any) //nolint:forcetypeassert // its schema says so
		labels := group.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		delete(spec, "service")
		delete(spec, "insecureSkipTLSVerify")
		delete(labels, managed)
		if service != nil {
			spec["service"], spec["insecureSkipTLSVerify"] = service, true
		} else {
			labels[managed] = "true"
		}
		group.SetLabels(labels)
	}))
	w.until(func() error {
		_, err := shared.Management.Kubectl(w.step(), "get", "--raw", "/apis/infrastructure.cluster.x-k8s.io/v1beta1/planemachines?limit=1")
		if served := err == nil; served != (service == nil) {
			return fmt.Errorf("it is served: %t: %w", served, err)
		}
		return nil
	})
}

// children returns the children of a ScheduledMachine.
func children(sm *v1alpha1.ScheduledMachine) []client.Object {
	var all []client.Object
	for suffix, kind := range map[string]struct{ version, kind string }{
		"-machine":   {clusterv1.GroupVersion.String(), "Machine"},
		"-infra":     {sm.Spec.InfrastructureSpec.APIVersion, sm.Spec.InfrastructureSpec.Kind},
		"-bootstrap": {sm.Spec.BootstrapSpec.APIVersion, sm.Spec.BootstrapSpec.Kind},
	} {
		child := &metav1.PartialObjectMetadata{}
		child.APIVersion, child.Kind = kind.version, kind.kind
		child.Namespace, child.Name = sm.Namespace, sm.Name+suffix
		all = append(all, child)
	}
	return all
}
