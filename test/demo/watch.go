// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	"github.com/finos/cluster-api-addon-provider-5spot/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
	"github.com/finos/cluster-api-addon-provider-5spot/test/system"
)

// A milestone is an event that a step waits for. Each is printed once.
type milestone string

const (
	machineCreated milestone = "Machine to be created"
	nodeRegistered milestone = "Node to be registered"
	nodeReady      milestone = "Node to be Ready"
	running        milestone = "ScheduledMachine to be Active and Ready"
	protected      milestone = "owner to be protected"
	matched        milestone = "agent to see the owner's program"
	podStopped     milestone = "pod to stop"
	podIdle        milestone = "CPU share of the stopped pod"
	annotated      milestone = "Node to be annotated"
	remembered     milestone = "ScheduledMachine to remember the request"
	emergency      milestone = "phase EmergencyRemove"
	deleting       milestone = "Machine's deletionTimestamp"
	machineGone    milestone = "Machine to be gone"
	nodeGone       milestone = "Node to be gone"
	disabled       milestone = "phase Disabled"
)

// An event is a milestone that was reached.
type event struct {
	milestone
	at   time.Time
	text string
}

// follow watches all objects of the demo, until ctx ends.
func (s *story) follow(ctx context.Context) error {
	s.seen = make(chan event, 100) // more than there are milestones
	name := client.MatchingFields{"metadata.name": nodeName}
	space := client.InNamespace(namespace)
	of := client.MatchingLabels{v1alpha1.ScheduledMachineLabel: nodeName}
	for _, w := range []struct {
		cluster *plane.Cluster
		list    client.ObjectList
		opts    []client.ListOption
		tell    func(watch.Event, func(milestone, string, ...any))
	}{
		{s.Management, &v1alpha1.ScheduledMachineList{}, []client.ListOption{space, name}, ofScheduledMachine},
		{s.Management, &clusterv1.MachineList{}, []client.ListOption{space, of}, ofMachine},
		{s.workload.Cluster, &corev1.NodeList{}, []client.ListOption{name}, ofNode},
	} {
		stream, err := w.cluster.Client.Watch(ctx, w.list, w.opts...)
		if err != nil {
			return fmt.Errorf("watching %T: %w", w.list, err)
		}
		go s.listen(stream, w.tell)
	}
	return nil
}

// listen records when each milestone was first reached.
func (s *story) listen(stream watch.Interface, tell func(watch.Event, func(milestone, string, ...any))) {
	told := map[milestone]bool{}
	for e := range stream.ResultChan() {
		now := s.clock.Now()
		tell(e, func(m milestone, format string, args ...any) {
			if !told[m] {
				told[m] = true
				s.seen <- event{m, now, fmt.Sprintf(format, args...)}
			}
		})
	}
}

func ofScheduledMachine(e watch.Event, tell func(milestone, string, ...any)) {
	sm, ok := e.Object.(*v1alpha1.ScheduledMachine)
	if !ok {
		return
	}
	if request, ok := sm.ReclaimRequest(); ok {
		tell(remembered, "ScheduledMachine remembers the request: %s", request.Why())
	}
	if c := condition(sm.Status.Conditions, v1alpha1.OwnerProtectedCondition); c.Status == metav1.ConditionTrue {
		tell(protected, "The owner is protected: %s", c.Message)
	}
	scheduled := condition(sm.Status.Conditions, v1alpha1.ScheduledCondition)
	switch ready := condition(sm.Status.Conditions, v1alpha1.ReadyCondition); sm.Status.Phase {
	case v1alpha1.PhaseActive:
		if ready.Status == metav1.ConditionTrue {
			tell(running, "ScheduledMachine is Active and Ready: %s", scheduled.Message)
		}
	case v1alpha1.PhaseEmergencyRemove:
		tell(emergency, "ScheduledMachine is EmergencyRemove: %s", ready.Message)
	case v1alpha1.PhaseDisabled:
		if scheduled.Reason == v1alpha1.EmergencyReclaimDisabledScheduleReason {
			tell(disabled, "ScheduledMachine is Disabled: %s", scheduled.Message)
		}
	default:
	}
}

func ofMachine(e watch.Event, tell func(milestone, string, ...any)) {
	m, ok := e.Object.(*clusterv1.Machine)
	switch {
	case !ok:
	case e.Type == watch.Deleted:
		tell(machineGone, "Machine %s is gone", m.Name)
	case !m.DeletionTimestamp.IsZero():
		tell(deleting, "Machine %s has a deletionTimestamp", m.Name)
	default:
		tell(machineCreated, "Machine %s is created", m.Name)
	}
}

func ofNode(e watch.Event, tell func(milestone, string, ...any)) {
	node, ok := e.Object.(*corev1.Node)
	if !ok {
		return
	}
	if e.Type == watch.Deleted {
		tell(nodeGone, "Node %s is gone", node.Name)
		return
	}
	tell(nodeRegistered, "Node %s is registered", node.Name)
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			tell(nodeReady, "Node %s is Ready", node.Name)
		}
	}
	if reclaim.Requested(node.Annotations) {
		tell(annotated, "Node is annotated: %s=%s, %s", reclaim.RequestedAnnotation, reclaim.RequestedValue, node.Annotations[reclaim.ReasonAnnotation])
	}
}

func condition(conditions []metav1.Condition, kind string) metav1.Condition {
	i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return metav1.Condition{}
	}
	return conditions[i]
}

// readAgent finds the line in the agent's log about the owner's program.
func (s *story) readAgent(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, line := range system.ParseLog(s.agent.log(5) + "\n") {
			if line.Message() == "Process matches" {
				s.seen <- event{matched, line.Time(), fmt.Sprintf("reclaim-agent saw it: pid %s, pattern %s, by %s (time of its log)", line["pid"], line["pattern"], line["detector"])}
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// await prints milestones as they are reached, until all wanted ones were. It keeps milestones that are reached early
// for later.
func (s *story) await(ctx context.Context, wanted ...milestone) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for len(wanted) > 0 {
		if i := slices.IndexFunc(s.pending, func(e event) bool { return slices.Contains(wanted, e.milestone) }); i >= 0 {
			e := s.pending[i]
			s.pending = slices.Delete(s.pending, i, i+1)
			wanted = slices.DeleteFunc(wanted, func(m milestone) bool { return m == e.milestone })
			s.tellAt(e.at, e.text)
			continue
		}
		select {
		case e := <-s.seen:
			s.pending = append(s.pending, e)
		case <-ctx.Done():
			return fmt.Errorf("waiting for: %s: %w", list(wanted), ctx.Err())
		}
	}
	return nil
}

func list(milestones []milestone) string {
	names := make([]string, len(milestones))
	for i, m := range milestones {
		names[i] = string(m)
	}
	return strings.Join(names, ", ")
}
