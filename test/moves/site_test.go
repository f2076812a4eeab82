// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	evictionv1 "github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/await"
	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/specs"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	patience  = 3 * time.Minute
	namespace = "moves"
	// moveKey is the mark for the operators of these tests.
	moveKey = "db.example.com/move"
	// operatorName is the user of an operator.
	operatorName = "operator"
)

// A site is a Cluster with the eviction guard.
type site struct {
	*system.System
	lab *plane.Workload
	// operators is a client with an operator's user.
	operators client.WithWatch
}

func newSite(ctx context.Context, s *system.System) (*site, error) {
	lab, err := s.NewWorkload(ctx, plane.WorkloadOptions{
		Namespace: namespace, Name: namespace, ClusterOptions: plane.ClusterOptions{NoScheduler: true, AuditBodies: system.JudgedInWorkload},
	})
	if err != nil {
		return nil, err
	}
	if err := lab.EnsureNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	if _, err := system.NewGuard(ctx, s.Plane, lab.Cluster, system.GuardOptions{}); err != nil {
		return nil, err
	}
	operator, err := lab.User(operatorName, "system:masters")
	if err != nil {
		return nil, err
	}
	site := &site{System: s, lab: lab}
	site.operators, err = client.NewWithWatch(operator.Config, client.Options{Scheme: lab.Client.Scheme()})
	return site, err
}

// A scene is the part of a site that one test uses.
type scene struct {
	*testing.T
	*specs.Cluster

	lab *plane.Workload
}

// newScene is a scene for a test with pods in that namespace.
func newScene(t *testing.T, lab *plane.Workload, pods string) scene {
	t.Helper()
	return scene{t, &specs.Cluster{
		T: t, Management: shared.Management.Client, Workload: lab.Client, Namespace: pods, Image: "work:1", Patience: patience,
	}, lab}
}

// A database is a machine that leaves, with a pod that its operator moves, and a second machine to which the pod moves.
type database struct {
	scene

	name    string
	leaving *v1alpha1.ScheduledMachine
	home    *v1alpha1.ScheduledMachine
	machine *clusterv1.Machine
	pod     *corev1.Pod
}

// newDatabase starts both machines, and the pod in a namespace.
func newDatabase(t *testing.T, pods, name string, change func(*v1alpha1.ScheduledMachine)) *database {
	t.Helper()
	d := &database{scene: newScene(t, shared.lab, pods), name: name}
	for _, sm := range []**v1alpha1.ScheduledMachine{&d.leaving, &d.home} {
		role := map[bool]string{true: "leaves", false: "stays"}[sm == &d.leaving]
		*sm = system.ScheduledMachine(shared.lab, name+"-"+role, infrav1.PlaneMachineSpec{})
		if change != nil && sm == &d.leaving {
			change(*sm)
		}
		d.Start(*sm)
		t.Cleanup(func() { d.remove(*sm) })
	}
	policy := &evictionv1.ReschedulePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: pods, Name: name},
		Spec: evictionv1.ReschedulePolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"db": name}},
			Request:     evictionv1.Request{Annotation: &evictionv1.Annotation{Key: moveKey, Value: "true"}},
		},
	}
	d.must(d.Workload.Create(d.step(), policy))
	t.Cleanup(func() { // Otherwise the cleanup would wait for the operator, too.
		if err := d.Workload.Delete(context.WithoutCancel(t.Context()), policy); err != nil {
			t.Error(err)
		}
	})
	for _, sm := range []*v1alpha1.ScheduledMachine{d.leaving, d.home} {
		d.WaitPhase(sm, v1alpha1.PhaseActive, metav1.ConditionTrue)
	}
	d.pod = d.RunPod(d.leaving, name+"-0", d.Image, d.labelled)
	d.machine = &clusterv1.Machine{}
	d.must(d.Management.Get(d.step(), client.ObjectKey{Namespace: namespace, Name: d.leaving.Name + "-machine"}, d.machine))
	return d
}

func (d *database) labelled(pod *corev1.Pod) { pod.Labels["db"] = d.name }

// waitAsked waits until a pod is marked, which may be before any condition shows it.
func (s *scene) waitAsked(pod *corev1.Pod) {
	s.Helper()
	s.must(await.Object(s.step(), s.Workload, pod, func() error {
		if pod.Annotations[moveKey] != "true" {
			return errors.New("nobody has asked to move it")
		}
		return nil
	}))
}

// move moves the pod as an operator: to a pod with a new name, or in place.
func (d *database) move(inPlace bool) *corev1.Pod {
	d.Helper()
	d.waitAsked(d.pod)
	home := d.Node(d.home)
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.name + "-1", Labels: d.pod.Labels},
		Spec:       corev1.PodSpec{NodeName: home.Name, Containers: []corev1.Container{{Name: "main", Image: d.Image}}},
	}
	if inPlace {
		made.Name = d.pod.Name
	} else {
		d.must(shared.operators.Create(d.step(), made))
	}
	d.must(shared.operators.Delete(d.step(), d.pod, client.Preconditions{UID: &d.pod.UID}))
	if inPlace {
		d.must(await.Gone(d.step(), d.Workload, d.pod.DeepCopy()))
		d.must(shared.operators.Create(d.step(), made))
	}
	return made
}

// cause is the cause that the guard gives for the pod.
func (d *database) cause() string {
	return fmt.Sprintf("ReschedulePolicy %s: its operator has the request to move it", d.name)
}

// waitHeld waits until all conditions and commands show that the machine waits for the operator.
func (d *database) waitHeld() {
	d.Helper()
	says := fmt.Sprintf("%s/%s: %s", d.Namespace, d.pod.Name, d.cause())
	d.must(await.Object(d.step(), d.Management, d.machine, func() error {
		c := conditions.Get(d.machine, v1alpha1.ReadyForDeletionCondition)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.WaitingForOperatorsReason || !strings.HasPrefix(c.Message, says+" (until ") {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	}))
	d.WaitCondition(d.leaving, metav1.Condition{Type: v1alpha1.MachineReadyCondition, Status: metav1.ConditionFalse, Reason: v1alpha1.WaitingForOperatorsReason}, says)
	if !d.Node(d.leaving).Spec.Unschedulable {
		d.Error("its Node is not cordoned: the pod may come back")
	}
}

// waitGone waits until the machine is gone, and returns the reasons that ReadyForDeletion had.
func (d *database) waitGone() (reasons []string) {
	d.Helper()
	d.must(await.Until(d.step(), func(ctx context.Context) error {
		now := &clusterv1.Machine{}
		if err := d.Management.Get(ctx, client.ObjectKeyFromObject(d.machine), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		if r := conditions.GetReason(now, v1alpha1.ReadyForDeletionCondition); r != "" && !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
		return errors.New("the Machine is still there")
	}))
	return reasons
}

// ended returns which user ended the pod, how, and when, from the API server's audit log.
func (d *database) ended() (who string, at time.Time) {
	d.Helper()
	for _, e := range d.tries(d.pod) {
		if e.ResponseStatus.Code < http.StatusMultipleChoices {
			return e.User.Username + " " + verb(&e), e.RequestReceivedTimestamp.Time
		}
	}
	return "nobody", time.Time{}
}

// tries returns all requests that could end a pod.
func (s *scene) tries(pod *corev1.Pod) (tries []auditv1.Event) {
	s.Helper()
	events, err := s.lab.AuditEvents()
	s.must(err)
	for _, e := range events {
		if e.ObjectRef == nil || e.ObjectRef.Resource != "pods" || e.ObjectRef.Namespace != pod.Namespace || e.ObjectRef.Name != pod.Name || e.ResponseStatus == nil {
			continue
		}
		if v := verb(&e); v == "delete" || v == evicts {
			tries = append(tries, e)
		}
	}
	return tries
}

// evicts is the verb of an eviction.
const evicts = "create eviction"

func verb(e *auditv1.Event) string { return strings.TrimSpace(e.Verb + " " + e.ObjectRef.Subresource) }

// remove deletes an object after the test, and waits until it is gone.
func (d *database) remove(obj client.Object) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.Management.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		d.Error(err)
	}
	if err := await.Gone(ctx, d.Management, obj); err != nil {
		d.Error(err)
	}
}

// step is a context for one step.
func (s *scene) step() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
