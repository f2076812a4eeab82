// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
)

// ourMachine holds the metadata of a Machine that belongs to a ScheduledMachine.
type ourMachine struct {
	metav1.ObjectMeta `json:"metadata"`
}

func (m *ourMachine) cluster() string   { return m.Labels[clusterv1.ClusterNameLabel] }
func (m *ourMachine) scheduled() string { return m.Labels[v1alpha1.ScheduledMachineLabel] }

// machines returns the Machines of ScheduledMachines in one namespace, or in all namespaces if it is empty. The API
// server sends only their metadata.
func (c *cluster) machines(ctx context.Context, namespace string) ([]ourMachine, error) {
	return c.metadata(ctx, "machines", namespace, v1alpha1.ScheduledMachineLabel)
}

// metadata lists the metadata of a resource of Cluster API.
func (c *cluster) metadata(ctx context.Context, resource, namespace, selector string) ([]ourMachine, error) {
	result := c.rest.Get().AbsPath("/apis/"+clusterv1.GroupVersion.String()).Namespace(namespace).Resource(resource).
		Param("labelSelector", selector).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx)
	if err := result.Error(); err != nil { // Raw would hide the server's own error message.
		return nil, failed("listing "+resource, err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, failed("listing "+resource, err)
	}
	var list struct {
		Items []ourMachine `json:"items"`
	}
	return list.Items, failed("listing "+resource, json.Unmarshal(raw, &list))
}
