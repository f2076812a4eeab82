// SPDX-License-Identifier: Apache-2.0

package kubectl_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/audit"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/departurecap"
)

// TestJSONEscapesHiddenCharacters prints texts of other programs with characters that control a terminal.
func TestJSONEscapesHiddenCharacters(t *testing.T) {
	t.Parallel()
	const hidden = "a\u009b\u202e\u200b\U000e0041\u2028\x7fé<z"
	m := machine("office", kept(departurecap.BlastRadiusCap, 20*time.Second))
	for i := range m.Status.Conditions {
		m.Status.Conditions[i].Message = hidden
	}
	m.Status.Conditions = append(m.Status.Conditions, condition("Ready", metav1.ConditionFalse, "ReconcileFailed", hidden))
	m.Status.NodeRef.Name = hidden
	config := fleet(t, metadata(), m)
	one := cluster(t, map[string]any{path("office"): m})
	for name, got := range map[string]result{
		"status": run("", "status", "office", "-o", "json", one),
		"why":    run("", "why", "office", "-o", "json", one),
		"rails":  run("", "rails", "-o", "json", config),
		"plan":   run(strings.Replace(office, "office", strconv.QuoteToASCII(hidden), 1), "plan", "-f", "-", "-o", "json"),
		"audit":  run(logged(0, "c1", audit.Success, func(l *audit.Line) { l.Reason = hidden }), "audit", "-o", "json"),
	} {
		var value any
		if err := json.Unmarshal([]byte(got.Out), &value); err != nil {
			t.Errorf("%s: %v: %+v", name, err, got)
		}
		if strings.ContainsFunc(got.Out, func(r rune) bool { return r != '\n' && clip.Hidden(r) }) || !strings.Contains(got.Out, `a\u009b\u202e\u200b\udb40\udc41\u2028\u007fé<z`) {
			t.Errorf("%s: not escaped: %+q", name, got.Out)
		}
		if !strings.Contains(fmt.Sprint(value), hidden) {
			t.Errorf("%s: the value differs: %q", name, value)
		}
	}
}
