// SPDX-License-Identifier: Apache-2.0

package reclaimagent

import (
	"context"
	"sync"

	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/hold"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/metrics"
	"github.com/finos/cluster-api-addon-provider-5spot/reclaimagent/report"
)

// holding holds the pods of the machine and reports that to its Node.
type holding struct {
	*hold.Holder
	reporter *report.HoldReporter
}

func newHolding(o Options, w Environment, reporting report.Options, counts *metrics.Set) *holding {
	reporter := report.NewHoldReporter(reporting)
	return &holding{reporter: reporter, Holder: hold.New(hold.Options{
		CgroupRoot: o.CgroupRoot, ProcRoot: o.ProcRoot, Log: w.Log, Now: w.Now, Metrics: counts, Report: reporter.Set,
	})}
}

// Run holds and reports until ctx is done.
func (h *holding) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { h.reporter.Run(ctx) })
	h.Holder.Run(ctx)
	background.Wait()
}
