// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

func TestDuring(t *testing.T) {
	span := func(from, to time.Duration) judge.Span { return judge.Span{From: begin.Add(from), To: begin.Add(to)} }
	records := append(boxes(3), leaves(0, 0), leaves(1, 5*time.Second), leaves(2, 30*time.Second))
	for name, tc := range map[string]struct {
		times []judge.Span
		ruleCase
	}{
		"Never": {nil, ruleCase{reason: "No manager kept the rule.", records: records}},
		"Then":  {[]judge.Span{span(5*time.Second, 6*time.Second)}, ruleCase{reason: "What was before is known.", records: records, judged: 1, broken: []string{"2 of 3 machines started to leave within 10s"}}},
		"Later": {[]judge.Span{span(6*time.Second, time.Hour)}, ruleCase{reason: "Only what happened then is judged.", records: records, judged: 1}},
	} {
		judged(t, func() judge.Rule { return judge.During(judge.Cap(50_000), tc.times...) }, map[string]ruleCase{name: tc.ruleCase})
	}
}
