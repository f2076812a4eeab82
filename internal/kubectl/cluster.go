// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

const resource = "scheduledmachines"

// cluster reads ScheduledMachines with one request each and no discovery.
type cluster struct {
	rest      rest.Interface
	namespace string
}

// connect opens the cluster that the flags name. It sends nothing yet.
func connect(config clientcmd.ClientConfig) (*cluster, error) {
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	c, err := config.ClientConfig()
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building scheme: %w", err)
	}
	c.GroupVersion = &v1alpha1.GroupVersion
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, failed("reading kubeconfig", err)
	}
	return &cluster{rest: client, namespace: namespace}, nil
}

// get returns the objects of those names, or an error for every one that it cannot.
func (c *cluster) get(ctx context.Context, names []string) ([]v1alpha1.ScheduledMachine, error) {
	objects := make([]v1alpha1.ScheduledMachine, len(names))
	var errs []error
	for i, name := range names {
		err := c.rest.Get().Namespace(c.namespace).Resource(resource).Name(name).Do(ctx).Into(&objects[i])
		errs = append(errs, failed("reading "+name, err))
	}
	return objects, errors.Join(errs...)
}

// list returns the objects of one namespace, or of all if it is empty.
func (c *cluster) list(ctx context.Context, namespace string) ([]v1alpha1.ScheduledMachine, error) {
	var objects v1alpha1.ScheduledMachineList
	err := c.rest.Get().Namespace(namespace).Resource(resource).Do(ctx).Into(&objects)
	return objects.Items, failed("listing "+resource, err)
}
