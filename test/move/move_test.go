// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

const (
	// couriers is how many namespaces are moved side by side.
	couriers = 4
	// fewMoves is how many moves there are unless $MOVES says otherwise.
	fewMoves = 12
)

// TestMovesAtAnyMoment moves machines in the middle of their window, of a departure
// and of an emergency: nothing is lost, made twice, or begun anew.
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

// TestADepartureGoesOn opens the window of a machine again in the middle of its
// departure, and in the middle of a move: a Node that may be cordoned does not stay.
func TestADepartureGoesOn(t *testing.T) {
	t.Parallel()
	c := newCourier(t, "halfway", nil, 8)
	node := c.cluster().Node(c.sm)
	c.cluster().SetSchedule(c.sm, closed())
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.sm.Status.MachineRef.Name}}
	c.must(c.mgmt().Wait(c.ctx(), machine, func() error {
		if _, leaves := machine.Annotations[v1alpha1.DepartureAnnotation]; !leaves {
			return errors.New("it is not marked")
		}
		return nil
	}))
	c.edit(func() {
		metav1.SetMetaDataAnnotation(&c.sm.ObjectMeta, clusterv1.PausedAnnotation, "")
		c.sm.Spec.Schedule = open()
	})
	c.move()
	c.must(c.mgmt().Client.Get(c.ctx(), client.ObjectKeyFromObject(machine), machine))
	if !machine.DeletionTimestamp.IsZero() {
		t.Error("a move brings objects that nobody deletes, or this test shows nothing")
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
