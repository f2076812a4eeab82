// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// clusterctlLabel is the label on the kinds that clusterctl installs, and moves.
const clusterctlLabel = "clusterctl.cluster.x-k8s.io"

// A pair is the two systems of a move.
type pair [2]*system.System

// The two systems, and the control plane of all Clusters.
var (
	systems  pair
	workload *plane.Cluster
)

func TestMain(m *testing.M) {
	run := func() int { return plane.RunOn(start, system.StartTimeout, m.Run) }
	os.Exit(plane.Parallel(couriers+1, run))
}

func start(ctx context.Context) (plane.Stage, error) {
	var errs [2]error
	var wg sync.WaitGroup
	// Cluster API detects that a Cluster is unpaused when an object of a Machine changes, or else after this period.
	o := system.Options{Plane: plane.Options{Args: map[plane.Component][]string{plane.Core: {"--sync-period=15s"}}}}
	for i := range systems {
		wg.Go(func() {
			if systems[i], errs[i] = system.Start(ctx, o); errs[i] == nil {
				errs[i] = label(ctx, systems[i].Management.Client)
			}
		})
	}
	wg.Wait()
	err := errors.Join(errs[:]...)
	if err == nil {
		workload, err = systems[0].NewCluster(ctx, "workload", plane.ClusterOptions{NodeMonitorGrace: 10 * time.Minute})
	}
	if err != nil {
		return nil, errors.Join(err, systems.Stop())
	}
	return systems, nil
}

// label makes clusterctl treat the kinds as installed by itself.
func label(ctx context.Context, c client.Client) error {
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(ctx, crds); err != nil {
		return err
	}
	for i := range crds.Items {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, clusterctlLabel))
		if err := c.Patch(ctx, &crds.Items[i], patch); err != nil {
			return err
		}
	}
	return nil
}

// DumpLogs writes the last lines of every log of both to w.
func (p pair) DumpLogs(w io.Writer, lines int) {
	for _, s := range p {
		s.DumpLogs(w, lines)
	}
}

// Stop stops the systems that were started.
func (p pair) Stop() error {
	var errs []error
	for _, s := range p {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}
