// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// couriers is how many namespaces are moved in parallel.
	couriers = 4
	// fewMoves is the default number of moves; $MOVES overrides it.
	fewMoves = 12
)

// TestMovesAtAnyMoment moves machines during their window, a departure and an emergency. Nothing may be lost, created
// twice, or restarted.
func TestMovesAtAnyMoment(t *testing.T) {
	system.Long(t)
	t.Parallel()
	seed, moves := number(t, "SEED", uint64(time.Now().UnixNano())), number(t, "MOVES", fewMoves)
	t.Logf("SEED=%d MOVES=%d", seed, moves)
	for i := range uint64(couriers) {
		t.Run(fmt.Sprintf("courier%d", i), func(t *testing.T) {
			t.Parallel()
			c := newCourier(t, fmt.Sprintf("courier%d", i), rand.New(rand.NewPCG(seed, i)), 6)
			situations := []func(*courier){(*courier).inItsWindow, (*courier).inItsDeparture, (*courier).inAnEmergency}
			for n := i; n < moves; n += couriers {
				situations[(n/couriers+i)%3](c)
			}
			c.end()
		})
	}
}

// TestADepartureGoesOn opens the window of a machine again after its departure was recorded and before its Machine is
// deleted, and moves it. The Node may be cordoned, so the departure must continue.
func TestADepartureGoesOn(t *testing.T) {
	t.Parallel()
	c := newCourier(t, "halfway", nil, 8)
	node := c.cluster().Node(c.sm)
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.sm.Status.MachineRef.Name}}
	deletable := func(ctx context.Context) error { return c.mgmt().Client.Delete(ctx, machine, client.DryRunAll) }

	const why = "the test holds the departure here"
	lift := c.cluster().Refuse(clusterv1.GroupVersion.Group, "machines", why, admissionv1.Delete)
	c.must(plane.Until(c.ctx(), func(ctx context.Context) error {
		if err := deletable(ctx); err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("deleting the Machine is not refused: %w", err)
		}
		return nil
	}))
	c.cluster().SetSchedule(c.sm, closed())
	c.must(c.mgmt().Wait(c.ctx(), machine, func() error {
		if d, _ := v1alpha1.ParseDeparture(machine.Annotations[v1alpha1.DepartureAnnotation]); d.Since.IsZero() {
			return errors.New("its departure is not admitted")
		}
		return nil
	}))
	c.edit(func() {
		metav1.SetMetaDataAnnotation(&c.sm.ObjectMeta, clusterv1.PausedAnnotation, "")
		c.sm.Spec.Schedule = open()
	})
	c.cluster().WaitCondition(c.sm, metav1.Condition{Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason})
	lift()
	c.must(plane.Until(c.ctx(), deletable))

	c.move()
	c.must(c.mgmt().Client.Get(c.ctx(), client.ObjectKeyFromObject(machine), machine))
	if !machine.DeletionTimestamp.IsZero() {
		t.Error("the Machine is being deleted already")
	}
	c.edit(func() { delete(c.sm.Annotations, clusterv1.PausedAnnotation) })
	c.must(workload.WaitGone(c.ctx(), node))
	c.joined()
	c.end()
}

// number is a number from the environment, or else the given one.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("$%s: %v", name, err)
	}
	return n
}
