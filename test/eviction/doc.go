// SPDX-License-Identifier: Apache-2.0

// Package eviction tests the eviction guard with a real API server and a real kubectl drain. The guard must protect the
// pods that an operator moves, and must not delay any others. Two processes of the guard run with the permissions of
// the released manifests.
//
// Each line below is a case of the feature and the test that covers it. Tests without a letter are in this package; E
// is exp/eviction, G exp/eviction/guard, V exp/eviction/verdict and M test/moves.
//
//	 1 an unrelated pod             UnprotectedPodsGo
//	 2 the first eviction           AnOperatorIsAskedOnce
//	 3 the second one               AnOperatorIsAskedOnce
//	 4 moved, with a new name       KubectlDrains, ADrainThatIsInterrupted
//	 5 plain pods and others        KubectlDrains
//	 6 how often kubectl tries      KubectlDrains
//	 7 moved, with the same name    KubectlDrains, APodThatHasMovedInPlace, TheNextNodeIsDrainedAtOnce
//	 8 the mark of the old hook     APodThatHasMovedInPlace
//	 9 on a CouchbaseCluster        TrackingByCouchbaseCluster
//	10 that is not upgraded         TrackingByCouchbaseCluster
//	11 on a Namespace               APodThatHasMovedInPlace
//	12 nowhere                      WhatCannotBeTracked
//	13 another selector             UnprotectedPodsGo
//	14 another annotation           AnOperatorIsAskedOnce
//	15 changes and deletions        OnlyEvictionsAreGuarded
//	16 a dry run in the body        NothingIsWrittenInADryRun
//	17 a dry run in the query       NothingIsWrittenInADryRun
//	18 a dry run of a drain         NothingIsWrittenInADryRun: it ends with its timeout
//	19 a pod that cannot be read    WhatMayNotBeDone
//	20 one that cannot be written   WhatMayNotBeDone
//	21 no object for the mark       WhatCannotBeTracked
//	22 a mark of an earlier drain   WhatWasWrittenBefore
//	23 and Cluster API's drain      M TheDrainMeetsTheGuard
//	24 many at once                 ManyEvictionsAtOnce, AStormOfEvictions
//	25 long names                   LongNames
//	26 another UID                  WhomAnEvictionMeans
//	27 a pod that has ended         PodsThatDoNotRun
//	28 a pod that leaves            PodsThatDoNotRun
//	29 a Node that is not draining   OnAHealthyNode
//	30 and a policy that moves      OnAHealthyNode
//	31 the deadline                 ASilentOperator
//	32 and the pod is deleted       ASilentOperator
//	33 the Node comes back          ADrainThatIsAborted
//	34 no guard, Ignore             TheGuardIsAway
//	35 no guard, Fail               TheGuardIsAway
//	36 a replica goes               ReplicasComeAndGo, OneReplicaHangs, AGuardThatHangs
//	37 the guard is rolled          ReplicasComeAndGo
//	38 another certificate          TheCertificateIsReplaced
//	39 no Retry-After               AnOperatorIsAskedOnce
//	40 the cause                    AnOperatorIsAskedOnce, M TheDrainMeetsTheGuard
//	41 v1beta1                      WhatTheGuardIsSent
//	42 no namespace in the body     WhatTheGuardIsSent
//	43 garbage                      WhatTheGuardIsSent
//	44 a namespace that has not     UnprotectedPodsGo
//	45 one at a time                OneAtATime
//	46 no more rights than these    all of them
//	47 how long it takes            not here: test/bench measures it
//	48 no pause between tries       WhoTriesAgainAtOnce
//	49 a pod is deleted             not here: a deletion calls no webhook
package eviction
