// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	patience = 3 * time.Minute
	// owners is how many reclaims are measured without, and with, the outage.
	owners = 5
	// flaky is the number of machines of the provider with the outage: more than the lane has workers.
	flaky = 110
)

// flakyCRD is a provider's kind. Its objects are stored as v1beta1; %s is the part that an upgrade adds.
const flakyCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: flakymachines.infrastructure.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/provider: infrastructure-flaky, cluster.x-k8s.io/v1beta2: v1beta1}
spec:
  group: infrastructure.cluster.x-k8s.io
  names: {kind: FlakyMachine, listKind: FlakyMachineList, plural: flakymachines, singular: flakymachine}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: %t
    schema: &schema {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
%s`

// upgraded is a version that needs a conversion webhook, which is down.
const upgraded = `
  - name: v1beta2
    served: true
    storage: true
    schema: *schema
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {url: "https://127.0.0.1:1/convert"}
`

// TestAnOutageOfAProviderIsNotFeltByOtherOwners has 110 requests for machines of a provider whose conversion webhook is
// down, right after a start of the manager. It also has 105 objects of a kind that cannot be listed.
func TestAnOutageOfAProviderIsNotFeltByOtherOwners(t *testing.T) {
	l := &world{t, &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: "lab", Patience: patience,
	}}
	l.apply(fmt.Sprintf(flakyCRD, true, ""))
	var all []*v1alpha1.ScheduledMachine
	for i := range 2 * owners {
		all = append(all, l.Start(system.ScheduledMachine(lab, fmt.Sprintf("box%d", i), infrav1.PlaneMachineSpec{})))
	}
	var flakies []*v1alpha1.ScheduledMachine
	for i := range flaky {
		sm := system.ScheduledMachine(lab, fmt.Sprintf("flaky%d", i), infrav1.PlaneMachineSpec{})
		sm.Spec.InfrastructureSpec.Kind = "FlakyMachine"
		flakies = append(flakies, l.Start(sm))
	}
	for _, sm := range all {
		l.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
	for _, sm := range flakies {
		l.WaitFor(machineOf(sm), func() error { return nil })
	}
	quiet, _ := l.latencies(all[:owners])

	l.must(shared.Manager.Kill())
	l.apply(fmt.Sprintf(flakyCRD, false, upgraded))
	l.must(shared.Manager.Start(l.timeout()))
	l.neverListed()
	begin := time.Now()
	for _, sm := range flakies {
		l.must(l.Edit(sm, func() {
			metav1.SetMetaDataAnnotation(&sm.ObjectMeta, v1alpha1.EmergencyReclaimAnnotation, v1alpha1.PersonsRequest("", "e2e", begin).String())
		}))
	}
	for _, sm := range flakies {
		m := machineOf(sm)
		l.WaitFor(m, func() error {
			if m.DeletionTimestamp.IsZero() {
				return errors.New("its owner waits for the provider, too")
			}
			return nil
		})
	}
	// Until the first calls time out, the manager does not know of the outage, and up to 75 workers wait.
	const mostWaiting = 50
	l.must(plane.Until(l.timeout(), func(ctx context.Context) error {
		if n := l.busyWorkers(ctx); n > mostWaiting/2 {
			return fmt.Errorf("%v of 100 workers wait for a provider", n)
		}
		return nil
	}))
	outage, workers := l.latencies(all[owners:])
	ratio := median(outage).Seconds() / median(quiet).Seconds()
	t.Logf("request to deletion of the Machine: quiet %v, in the outage %v: ratio of the medians %.2f; at most %v workers of the lane busy", quiet, outage, ratio, workers)
	if workers > mostWaiting {
		t.Errorf("%v of 100 workers wait for a provider", workers)
	}
	// 100 ms allow for other load on the machine.
	if median(outage) > median(quiet)*12/10+100*time.Millisecond {
		t.Errorf("an owner waits for another's provider: %v, and %v without an outage", median(outage), median(quiet))
	}
	l.WaitEvents(flakies[0], "Warning EmergencyReclaimStalled The owner wants the machine")
	l.WaitCondition(flakies[0], metav1.Condition{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.EmergencyReclaimReason})
}

// world is the Cluster of the test.
type world struct {
	*testing.T
	*specs.Cluster
}

func (l *world) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *world) timeout() context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	l.Cleanup(cancel)
	return ctx
}

func (l *world) apply(manifest string) {
	l.Helper()
	out, err := shared.Management.KubectlInput(l.timeout(), manifest, "apply", "-f", "-")
	if err != nil {
		l.Fatalf("%v: %s", err, out)
	}
	l.must(plane.Until(l.timeout(), func(ctx context.Context) error {
		_, err := shared.Management.Kubectl(ctx, "wait", "--for=condition=Established", "crd/flakymachines.infrastructure.cluster.x-k8s.io")
		return err
	}))
}

// neverListed creates objects of a kind that discovery shows and that no client can list, unless admission refuses
// them.
func (l *world) neverListed() {
	l.Helper()
	for i := range 105 {
		sm := system.ScheduledMachine(lab, fmt.Sprintf("list%d", i), infrav1.PlaneMachineSpec{})
		sm.Spec.InfrastructureSpec.Kind = "List"
		err := l.Management.Create(l.timeout(), sm)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return
		}
		l.must(err)
	}
}

// latencies makes one owner's request after the other. It returns how long each waited for the deletion of the Machine,
// and the maximum of busy workers in the lane.
func (l *world) latencies(machines []*v1alpha1.ScheduledMachine) (took []time.Duration, workers float64) {
	l.Helper()
	for _, sm := range machines {
		m := machineOf(sm)
		node := l.Node(sm)
		begin := time.Now()
		l.AskBack(node, "java")
		workers = max(workers, l.busyWorkers(l.timeout()))
		l.WaitFor(sm, func() error {
			if sm.Status.Phase != v1alpha1.PhaseDisabled {
				return fmt.Errorf("phase is %s", sm.Status.Phase)
			}
			return nil
		})
		took = append(took, l.deletedAt(m).Sub(begin))
	}
	return took, workers
}

// deletedAt is when the API server received the request to delete a Machine.
func (l *world) deletedAt(m *clusterv1.Machine) time.Time {
	l.Helper()
	events, err := shared.Management.AuditEvents()
	l.must(err)
	for _, e := range events {
		if e.Verb == "delete" && e.ObjectRef != nil && e.ObjectRef.Resource == "machines" && e.ObjectRef.Name == m.Name && e.User.Username == system.ManagerUser {
			return e.RequestReceivedTimestamp.Time
		}
	}
	l.Fatalf("nobody deleted Machine %s", m.Name)
	return time.Time{}
}

func machineOf(sm *v1alpha1.ScheduledMachine) *clusterv1.Machine {
	return &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: sm.Namespace, Name: sm.Name + "-machine"}}
}

// busyWorkers reads how many workers of the lane are busy.
func (l *world) busyWorkers(ctx context.Context) float64 {
	l.Helper()
	const name = `controller_runtime_active_workers{controller="reclaim"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+diagnostics+"/metrics", nil)
	l.must(err)
	res, err := http.DefaultClient.Do(req)
	l.must(err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	l.must(err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			l.must(err)
			return v
		}
	}
	l.Fatalf("no metric %s", name)
	return 0
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}
