// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// clusterctlLabel is what clusterctl puts on the kinds that it installs, and moves.
const clusterctlLabel = "clusterctl.cluster.x-k8s.io"

// startTimeout bounds the start of everything; a busy machine takes a while.
const startTimeout = 4 * time.Minute

// The two systems between which is moved, and the control plane of all Clusters.
var (
	systems  [2]*system.System
	workload *plane.Cluster
)

func TestMain(m *testing.M) {
	os.Exit(plane.Parallel(couriers+1, func() int { return run(m) }))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Starting two systems:", errors.Join(err, stop()))
		return 1
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "Stopping two systems:", err)
		return 1
	}
	return code
}

func start(ctx context.Context) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i := range systems {
		wg.Go(func() {
			if systems[i], errs[i] = system.Start(ctx, system.Options{}); errs[i] == nil {
				errs[i] = label(ctx, systems[i].Management.Client)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	var err error
	workload, err = systems[0].NewCluster(ctx, "workload", plane.ClusterOptions{NodeMonitorGrace: 10 * time.Minute})
	return err
}

// label makes clusterctl see the kinds that it did not install itself.
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

func stop() error {
	var errs []error
	for _, s := range systems {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}
