// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/writer"
)

// holdOptions are the flags of hold-departures and release-departures.
type holdOptions struct {
	// hold is false for release-departures.
	hold               bool
	reason             string
	all, allNamespaces bool
}

func newHoldDepartures(o Options, config clientcmd.ClientConfig) *cobra.Command {
	h := holdOptions{hold: true}
	cmd := h.command(o, config)
	cmd.Use = "hold-departures CLUSTER..."
	cmd.Short = "Hold all departures of a Cluster that have not started; owners' requests go on"
	cmd.Long = `Hold all departures of a Cluster that have not started: ends of windows, edits,
deletions and remediations. The machines stay as they are until release-departures.

Owners' requests and kill switches are served, and the departures that have started
go on. The hold is the annotation 5spot.finos.org/hold-departures of the Cluster:
it works at once, without a rollout, and outlives a restart and clusterctl move.`
	cmd.Example = `  kubectl 5spot hold-departures prod --reason "a bad template, see INC-12"
  kubectl 5spot hold-departures --all -n farm
  kubectl 5spot hold-departures -A`
	cmd.Flags().StringVar(&h.reason, "reason", "", "reason to show to others: `text` of one line")
	return cmd
}

func newReleaseDepartures(o Options, config clientcmd.ClientConfig) *cobra.Command {
	h := holdOptions{}
	cmd := h.command(o, config)
	cmd.Use = "release-departures CLUSTER..."
	cmd.Short = "End the hold of hold-departures"
	cmd.Long = `End the hold of hold-departures: machines that still have to leave start to, within
the departure cap.`
	cmd.Example = `  kubectl 5spot release-departures prod
  kubectl 5spot release-departures -A`
	return cmd
}

// command returns the part that both commands share.
func (h *holdOptions) command(o Options, config clientcmd.ClientConfig) *cobra.Command {
	cmd := &cobra.Command{
		ValidArgsFunction: completeClusters(config),
		Args: func(_ *cobra.Command, names []string) error {
			if every := h.all || h.allNamespaces; every == (len(names) > 0) {
				return errors.New("give the names of Clusters, or --all for all of the namespace, or -A for all of all namespaces")
			}
			return nil
		},
		RunE: onCluster(o, config, h.run),
	}
	cmd.Flags().BoolVar(&h.all, "all", false, "all Clusters of the namespace")
	cmd.Flags().BoolVarP(&h.allNamespaces, "all-namespaces", "A", false, "all Clusters of all namespaces")
	return cmd
}

func (h *holdOptions) run(ctx context.Context, c *cluster, names []string) error {
	clusters, err := c.clusters(ctx, names)
	if err != nil {
		return err
	}
	if len(clusters) == 0 {
		return write(c.Err, "No Clusters found"+c.inNamespace()+".\n")
	}
	var reason *string // null removes the annotation
	if h.hold {
		reason = new(clip.Line(h.reason))
	}
	var errs []error
	for _, key := range clusters {
		if err := c.annotateCluster(ctx, key, reason); err != nil {
			errs = append(errs, err)
			continue
		}
		text := fmt.Sprintf("%s: its departures are released: machines that have to leave start to, within the departure cap.\n", key.Name)
		if h.hold {
			text = fmt.Sprintf("%[2]s: its departures are held. Owners' requests and kill switches are served, and departures that have started go on. "+
				"To end this: kubectl 5spot -n %[1]s release-departures %[2]s\n", key.Namespace, key.Name)
		}
		errs = append(errs, write(c.Out, text))
	}
	return errors.Join(errs...)
}

// clusters returns the named Clusters; without names, all of the namespace, or of all namespaces.
func (c *cluster) clusters(ctx context.Context, names []string) ([]client.ObjectKey, error) {
	if len(names) > 0 {
		return convert(names, c.key), nil
	}
	items, err := c.metadata(ctx, clusterv1.GroupVersion.WithKind("ClusterList"), client.InNamespace(c.namespace))
	return convert(items, func(m metav1.PartialObjectMetadata) client.ObjectKey { return client.ObjectKeyFromObject(&m) }), failed("listing clusters", err)
}

// annotateCluster sets the annotation that holds the departures of a Cluster. A nil reason removes it.
func (c *cluster) annotateCluster(ctx context.Context, key client.ObjectKey, reason *string) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.HoldDeparturesAnnotation: reason}}})
	if err != nil {
		return fmt.Errorf("building patch: %w", err)
	}
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = c.Patch(ctx, object, client.RawPatch(types.MergePatchType, body), client.FieldOwner(writer.Plugin))
	if apierrors.IsNotFound(err) && !c.chosen {
		err = c.absent(err)
	}
	return failed("changing Cluster "+key.Name, err)
}
