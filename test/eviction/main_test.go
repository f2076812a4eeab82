// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

const (
	// abreast is how many tests run in parallel. They wait most of the time.
	abreast = 8
	// startTimeout bounds the start of the shared parts.
	startTimeout = 3 * time.Minute
)

var (
	// planes has an API server that is used only to start others.
	planes *plane.Plane
	// shared is the world of all tests that do not change its guard.
	shared *world
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	start := func(ctx context.Context) (_ plane.Stage, err error) {
		if planes, err = plane.Start(ctx, plane.Options{Components: []plane.Component{}, Management: controllers()}); err != nil {
			return nil, err
		}
		if shared, err = newWorld(ctx, planes.Management, guardOptions()); err != nil {
			planes.DumpLogs(os.Stderr, 20)
			_ = planes.Stop()
		}
		return planes, err
	}
	os.Exit(plane.RunOn(start, startTimeout, func() int { return plane.Parallel(abreast, m.Run) }))
}
