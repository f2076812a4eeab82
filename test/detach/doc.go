// SPDX-License-Identifier: Apache-2.0

// Package detach tests with real load balancers that a machine leaves without failed connections of its clients, and
// that 5-Spot restores what it has drained.
//
// Each line is a case of the feature with the tests that cover it. Tests without a package are in this one. D is
// exp/detach, and A, L, K and P are test/awselb, test/loadbalancer, test/kubeproxy and exp/detach/podorder.
//
//	 50 a cordon detaches a Node     OthersDrainANode; D: ACordonedNodeIsTakenOutAndPutBack
//	 51 an autoscaler's taint too    AnAutoscalerTaintsANode; D/plan: TriggersOfANode
//	 52 undone, it is attached again AnAutoscalerTaintsANode, OthersDrainANode
//	 53 one deregistration each      AnAutoscalerTaintsANode
//	 54 the Node is deleted          TargetsDrainBeforePodsAreEvicted; D: MembershipIsRestoredWhenNodeReturns
//	 55 known groups and names       A: ANodeLeavesAndComesBack, ANodeLeavesClassicLoadBalancers
//	 56 a settled Node costs nothing D: ANodeWhosePodsRunCostsNothing; A: NothingIsWrittenForNothing
//	 57 a group created later        TargetsDrainBeforePodsAreEvicted; A: GroupsOfTheRegionAreFound
//	 58 several ports of an address  AnAutoscalerTaintsANode; A: ANodeLeavesAndComesBack
//	 59 each kind by itself          not here: there are no flags, and a LoadBalancer has one kind
//	 60 an annotation requests it    D/plan: TriggersOfANode
//	 61 the taint of a dedicated Node D/plan: TriggersOfANode
//	 62 an old Node of a rollout     D/plan: TriggersOfANode
//	 63 a new Node                   D/plan: TriggersOfANode
//	 64 a control plane Node         D: ControlPlaneNodesStay
//	 65 pods wait for the targets    TargetsDrainBeforePodsAreEvicted
//	 66 connections go on            NoClientIsHarmed
//	 67 pods are stopped in order    P: PodsAreStoppedInOrder, AGroupIsGoneBeforeTheNext
//	 68 a pod without a number       DaemonSetsAreStoppedInOrder; P: PodsWithoutPriorityCauseNoWrite
//	 69 deletion, not eviction       P: PodsAreStoppedInOrder for DaemonSets, PodWithAnnotationIsDeleted
//	 70 a pod's own grace period     P: PodsAreStoppedInOrder
//	 71 DaemonSets after the drain   DaemonSetsAreStoppedInOrder
//	 72 they do not come back        DaemonSetsAreStoppedInOrder; P: PodsDoNotComeBack
//	 73 a pod that tolerates all     P: PodsDoNotComeBack
//	 74 a budget in a group          P: ABudgetHoldsItsPodOnly
//	 75 a bad number                 P: InvalidPriorityAffectsNoOtherPod
//	 76 a pod of the same name       P: APodOfTheSameNameIsAnother
//	 77 no instance                  D/elb: InstanceID; A: TargetsAreFoundByAddress
//	 78 the instance in a providerID D/elb: InstanceID
//	 79 targets by address           TargetsDrainBeforePodsAreEvicted; A: TargetsAreFoundByAddress
//	 80 AWS throttles                A: TenTimesThrottled, AnAccountThatIsBusy
//	 81 a group is deleted           A: AGroupIsDeletedOnTheWay
//	 82 the documented permissions   A: TheSevenActionsSuffice
//	 83 it does not answer           ALoadBalancerThatDoesNotAnswer; D: UnreachableLoadBalancerIsReported
//	 84 HAProxy reloads              AMachineThatIsBackGetsItsPlace; L: Reload
//	 85 a label of another party     D/nodemark: SomebodyElses
//	 86 the leader is killed         TheOtherReplicaGoesOn; D: EachMembershipIsRestored
//	 87 the condition                TheLastMemberStays; D: UnreachableLoadBalancerIsReported
//	 88 events                       OthersDrainANode, ALoadBalancerThatDoesNotAnswer
//	 89 a DaemonSet is rolled        APodOfAnIngressIsReplaced, AnOutdatedIngressIsRolled
//	 90 managers share the Clusters  not here: the filter is Cluster API's own, as everywhere
//	 91 hooks are set in time        controllers/departure
//	 92 unused hooks are removed     controllers/departure
//	 93 the drain waits              AnOutageLetsNobodyGo; D: AMachineThatLeavesIsCordonedByUs
//	 94 and starts after it          TargetsDrainBeforePodsAreEvicted
//	 95 the deadline                 ALoadBalancerThatDoesNotAnswer; D: WhatAMachineWaitsFor
//	 96 the Cluster is deleted       AClusterThatGoesWaitsForNoLoadBalancer
//	 97 a Machine without a Node     D: ConcernsMachinesBehindLoadBalancers
//	 98 a Machine without a drain    not here: Cluster API calls the hook anyway
//	 99 a Node that is not Ready     controllers/departure: decide
//	100 a control plane Machine      not here: the plane has none; by default it stays, see 64
//	101 rules for drains             not here: 5-Spot creates none
//	102 the order of a drain         not here: it is Cluster API's
//	103 a crash at every write       D: EachMembershipIsRestored
//	104 two leave at the same time   TwoLeaveAtOnce
//	105 the API server is down       AnOutageLetsNobodyGo
//	106 an owner's request           AnEmergencyWaitsForNobody; D: EmergencyIgnoresMinMembers
//	107 the window closes            test/e2e; TargetsDrainBeforePodsAreEvicted
//	108 the last member              TheLastMemberStays; D/plan: APoolKeepsItsFloor
//
// In addition, K queries kube-proxy's real health check, and AnExtensionDrivesALoadBalancer runs the example of
// docs/extensions.md.
package detach
