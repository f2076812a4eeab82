// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/test/judge"
)

// box is the i-th machine of the Cluster lab.
func box(i int) (uid string, obj judge.Object) {
	obj = lab
	obj.Name = fmt.Sprintf("box-%d", i)
	return obj.Name, obj
}

// ofBox makes a Machine belong to the ScheduledMachine of its name, in the Cluster lab.
func ofBox(r *judge.Record) {
	labeled("5spot.finos.org/scheduled-machine", r.Object.Name)(r)
	labeled("cluster.x-k8s.io/cluster-name", "lab")(r)
}

// at is when a record is, relative to begin.
func at(after time.Duration) func(*judge.Record) {
	return func(r *judge.Record) { r.At = begin.Add(after) }
}

func hasNode(r *judge.Record) { r.Got.HasNode = true }

// boxes are the creations of n machines that have a Node, an hour before the test.
func boxes(n int) []judge.Record {
	var records []judge.Record
	for i := range n {
		uid, obj := box(i)
		records = append(records, with(by(manager, "patch", obj, uid), created, ofBox, shows(preDrain, ""), hasNode, at(-time.Hour)))
	}
	return records
}

// scheduledBox is a change of the ScheduledMachine of the i-th machine.
func scheduledBox(i int, user, verb string) judge.Record {
	sm := office
	_, obj := box(i)
	sm.Name = obj.Name
	return by(user, verb, sm, "s"+sm.Name)
}

// announced is a status write that announces an hour before when the window of the i-th machine ends.
func announced(i int, end time.Duration) judge.Record {
	return with(scheduledBox(i, manager, "patch"), at(end-time.Hour), func(r *judge.Record) {
		r.Subresource, r.Sent.Changes = "status", []string{"status/nextCleanup", "status/nextCleanupAnnouncedTime"}
		r.Got.NextCleanup, r.Got.NextCleanupAnnouncedTime = begin.Add(end), r.At
		r.Got.Generation, r.Got.ObservedGeneration = 1, 1
	})
}

// closing are boxes whose windows end at begin, as announced.
func closing(n int) []judge.Record {
	records := boxes(n)
	for i := range n {
		records = append(records, announced(i, 0))
	}
	return records
}

// killed is the kill switch of the i-th machine.
func killed(i int, after time.Duration) judge.Record {
	return with(scheduledBox(i, person, "patch"), at(after), func(r *judge.Record) { r.Got.KillSwitch = true })
}

// leaves is the deletion of the i-th Machine by the manager, after it has removed its hooks.
func leaves(i int, after time.Duration) judge.Record {
	uid, obj := box(i)
	return with(by(manager, "delete", obj, uid), deleting, ofBox, hasNode, at(after))
}

// held is the deletion of the i-th Machine by another client, which waits at the hook.
func held(i int, after time.Duration) judge.Record {
	return with(leaves(i, after), shows(preDrain, ""), func(r *judge.Record) { r.User = person })
}

// released is the removal of the hook from the i-th Machine, which another client has deleted.
func released(i int, after time.Duration) judge.Record {
	return with(leaves(i, after), sets(preDrain, ""), func(r *judge.Record) { r.Verb = "patch" })
}

// hostGone is the deletion of the infrastructure of the i-th machine by the manager.
func hostGone(i int, after time.Duration) judge.Record {
	uid, obj := box(i)
	of := infra
	of.Name = obj.Name
	return with(by(manager, "delete", of, "i"+uid), deleting, at(after), func(r *judge.Record) { r.Got.Owner = uid })
}

// each returns f for the machines from first, n of them.
func each(first, n int, f func(i int) judge.Record) (records []judge.Record) {
	for i := range n {
		records = append(records, f(first+i))
	}
	return records
}

func TestCap(t *testing.T) {
	join := func(records []judge.Record, more ...judge.Record) []judge.Record { return append(records, more...) }
	change := func(records []judge.Record, change func(*judge.Record)) []judge.Record {
		for i := range records {
			records[i] = with(records[i], change)
		}
		return records
	}
	elsewhere := func(r *judge.Record) { labeled("cluster.x-k8s.io/cluster-name", "other")(r) }
	byPerson := func(r *judge.Record) { r.User = person }
	noNode := func(r *judge.Record) { r.Got.HasNode = false }
	edited := func(i int, after time.Duration) judge.Record {
		return with(announced(i, 0), at(after), func(r *judge.Record) { r.User, r.Subresource, r.Got.Generation = person, "", 2 })
	}
	// announcedAt is the status write of announced at another time, with a change.
	announcedAt := func(i int, after time.Duration, change func(*judge.Record)) judge.Record {
		return with(announced(i, 0), at(after), change)
	}
	conditions := func(r *judge.Record) { r.Sent.Changes = []string{"status/conditions"} }
	// four leave, two at a time. They may at an announced end only.
	four := func(records []judge.Record) []judge.Record {
		return append(records, leaves(0, 0), leaves(1, 0), leaves(2, 10*time.Second), leaves(3, 10*time.Second))
	}
	tooMany := []string{"2 of 38 machines started to leave within 10s"}
	cluster := judge.Object{Cluster: "management", Group: "cluster.x-k8s.io", Resource: "clusters", Namespace: "farm", Name: "lab"}
	const second = time.Second
	judged(t, func() judge.Rule { return judge.Cap(50_000) }, map[string]ruleCase{
		"OneOfFew": {
			reason:  "One may always leave.",
			records: join(boxes(3), leaves(0, 0), leaves(1, 10*second)),
			judged:  2,
		},
		"TwoOfFew": {
			reason:  "A twentieth of three is none, and one may leave.",
			records: join(boxes(3), leaves(0, 0), leaves(1, 9999*time.Millisecond)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"TwoOfForty": {
			reason:  "A twentieth of forty are two.",
			records: join(boxes(40), leaves(0, 0), leaves(1, second)),
			judged:  2,
		},
		"ThreeOfForty": {
			reason:  "Machines that have just started to leave still count.",
			records: join(boxes(40), leaves(0, 0), leaves(1, second), leaves(2, 2*second)),
			judged:  3, broken: []string{"3 of 40 machines started to leave within 10s"},
		},
		"ThirtyNine": {
			reason:  "A fraction of a machine is none.",
			records: join(boxes(39), leaves(0, 0), leaves(1, second)),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"OtherCluster": {
			reason:  "Each Cluster has its own limit.",
			records: join(change(boxes(3), func(r *judge.Record) { labeled("cluster.x-k8s.io/cluster-name", r.Object.Name)(r) }), leaves(0, 0), leaves(1, 0)),
			judged:  2,
		},
		"RelabelledInTime": {
			reason:  "An edit of labels does not move a machine to a Cluster with another limit.",
			records: join(boxes(3), leaves(0, 0), with(leaves(1, 0), elsewhere)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"NotOurs": {
			reason: "5-Spot removes its hooks from Machines of others without a limit.",
			records: join(change(boxes(3), unlabeled), with(released(0, 0), unlabeled), with(released(1, 0), unlabeled),
				hostGone(2, 0)),
		},
		"OthersMachines": {
			reason:  "Machines that 5-Spot did not make let no other leave.",
			records: join(slices.Concat(boxes(39), change(boxes(50)[39:], foreign)), leaves(0, 0), leaves(1, 0)),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},

		// What starts a departure.
		"HookRemovedBeforeTheDeletion": {
			reason:  "Cluster API drains a Machine only when it is deleted.",
			records: join(boxes(3), with(released(0, 0), staying), with(released(1, 0), staying), leaves(0, second), leaves(1, 11*second)),
			judged:  2,
		},
		"DeletedAndHeldByAnExtension": {
			reason:  "The manager has decided when it deletes the Machine, so that the removal of the hook is no other start.",
			records: join(boxes(3), with(leaves(0, 0), shows(preDrain, "")), with(leaves(1, 10*second), shows(preDrain, "")), released(0, 12*second), released(1, 12*second)),
			judged:  2,
		},
		"DeletedTwice": {
			reason:  "A departure starts once, also if its requests are sent again.",
			records: join(boxes(3), leaves(0, 0), leaves(0, second), released(0, second), hostGone(0, 2*second)),
			judged:  1,
		},
		"DeletedAgainWhileHeld": {
			reason:  "The hook still holds the Machines that the manager deletes, too.",
			records: join(boxes(3), held(0, 0), held(1, 0), with(leaves(0, second), shows(preDrain, "")), with(leaves(1, second), shows(preDrain, "")), released(0, 2*second)),
			judged:  1,
		},
		"BootstrapConfigDeleted": {
			reason: "The machine runs without it.",
			records: join(boxes(3), leaves(2, 0), with(hostGone(0, 0), func(r *judge.Record) {
				r.Object.Group, r.Object.Resource = "bootstrap.cluster.x-k8s.io", "planeconfigs"
			})),
			judged: 1,
		},
		"Refused": {
			reason:  "A refused deletion starts nothing.",
			records: join(boxes(3), with(leaves(0, 0), refused), with(leaves(1, 0), refused), leaves(2, second)),
			judged:  1,
		},
		"OthersDelete": {
			reason:  "A Machine that another client deletes waits at the hook, and starts when that is removed.",
			records: join(boxes(3), held(0, 0), held(1, 0), held(2, 0), released(0, second), released(1, 11*second)),
			judged:  2,
		},
		"OthersDeleteAndTheHookIsRemovedAtOnce": {
			reason:  "The hook is removed at the pace of the cap.",
			records: join(boxes(3), held(0, 0), held(1, 0), held(2, 0), released(0, second), released(1, 2*second)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"HookRemovedByUpdate": {
			reason: "An update removes what it does not contain.",
			records: join(boxes(3), held(0, 0), held(1, 0), released(0, second),
				with(leaves(1, 2*second), func(r *judge.Record) { r.Verb = "update" })),
			judged: 2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"HookRemovedByApply": {
			reason: "The same for an apply.",
			records: join(boxes(3), held(0, 0), held(1, 0), released(0, second),
				with(leaves(1, 2*second), func(r *judge.Record) { r.Verb = "patch" })),
			judged: 2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"OthersRemoveTheHook": {
			reason:  "5-Spot cannot hold what another client releases.",
			records: join(boxes(3), held(0, 0), held(1, 0), with(released(0, second), byPerson), with(released(1, second), byPerson), released(0, second), leaves(2, 2*second)),
			judged:  1,
		},
		"OthersDeleteWithoutHook": {
			reason:  "The same if the hook was removed before.",
			records: join(boxes(3), with(leaves(0, 0), byPerson), with(leaves(1, 0), byPerson), hostGone(0, second), hostGone(1, second)),
		},
		"OthersDeleteInfrastructure": {
			reason:  "The manager did not decide it. It removes the Machine later, at the pace of the cap.",
			records: join(boxes(3), with(hostGone(0, 0), byPerson), with(hostGone(1, 0), byPerson), leaves(0, second), leaves(1, 2*second)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"SeenOutOfOrder": {
			reason: "Cluster API's requests began before the manager's and were answered after it. They show the effect of the manager's.",
			records: join(boxes(3), leaves(2, 0), held(0, 0), held(1, 0),
				with(released(0, second), func(r *judge.Record) {
					r.User, r.Verb, r.Subresource, r.Sent, r.Got.Version = core, "update", "status", nil, 100
				}), released(0, 2*second),
				with(released(1, second), func(r *judge.Record) { r.User, r.Sent, r.Got.Version = core, nil, 100 }), released(1, 2*second)),
			judged: 3, broken: []string{"2 of 3 machines started to leave within 10s", "3 of 3 machines started to leave within 10s"},
		},

		// Exempt departures.
		"KillSwitch": {
			reason:  "Kill switches do not wait.",
			records: join(boxes(3), killed(0, -time.Minute), killed(1, -time.Minute), leaves(0, 0), leaves(1, 0), leaves(2, 0)),
			judged:  1,
		},
		"KillSwitchTurnedOff": {
			reason: "It counts as last seen, and a manager sees changes late.",
			records: join(boxes(3), killed(0, -time.Minute), killed(1, -time.Minute), with(killed(0, 0), func(r *judge.Record) { r.Got.KillSwitch = false }),
				with(killed(1, 0), func(r *judge.Record) { r.Got.KillSwitch = false }), with(killed(1, 5*second), func(r *judge.Record) { r.Got.KillSwitch = false }), leaves(0, 9*second), leaves(1, 10*second), leaves(2, 11*second)),
			judged: 2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"OwnersRequest": {
			reason:  "Owners do not wait.",
			records: join(boxes(3), with(scheduledBox(0, manager, "patch"), sets(mark, "{}"), at(-second)), leaves(0, 0), leaves(1, 0)),
			judged:  1,
		},
		"OwnersRequestServed": {
			reason: "A machine that was created after its owner had it returned leaves at once.",
			records: join(boxes(3), with(scheduledBox(0, manager, "patch"), sets(served, "{}"), at(-second), func(r *judge.Record) { r.Got.Disabled = true }),
				leaves(0, 0), leaves(1, 0)),
			judged: 1,
		},
		"OwnersRequestServedAndLentAgain": {
			reason: "A schedule that is on lends the machine again.",
			records: join(boxes(3), with(scheduledBox(0, manager, "patch"), sets(served, "{}"), at(-second)),
				leaves(0, 0), leaves(1, 0)),
			judged: 2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"KilledAndGone": {
			reason:  "A kill switch ends with its ScheduledMachine.",
			records: join(boxes(3), killed(0, -time.Minute), with(killed(0, -11*second), gone), leaves(0, 0), leaves(1, 0)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"ClusterDeletedWithoutBody": {
			reason:  "That the deletion was accepted is enough.",
			records: join(boxes(3), with(by(person, "delete", cluster, "c"), unlogged, at(-second)), leaves(0, 0), leaves(1, 0)),
		},
		"OtherNamespaceDeleted": {
			reason: "Its Clusters are others.",
			records: join(boxes(3), with(by("namespace-controller", "deletecollection", cluster, ""), at(-second), func(r *judge.Record) { r.Object.Namespace, r.Object.Name, r.Got = "other", "", nil }),
				leaves(0, 0), leaves(1, 0)),
			judged: 2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"ClusterDeleted": {
			reason:  "The machines of a Cluster leave with it.",
			records: join(boxes(3), with(by(person, "delete", cluster, "c"), deleting, at(-second)), leaves(0, 0), leaves(1, 0)),
		},
		"ClusterLost": {
			reason:  "A Cluster that does not exist is not being deleted.",
			records: join(boxes(3), with(by(person, "delete", cluster, "c"), gone, at(-second)), leaves(0, 0), leaves(1, 0)),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},
		"NamespaceDeleted": {
			reason: "It deletes its Cluster as well.",
			records: join(boxes(3), with(by("namespace-controller", "deletecollection", cluster, ""), at(-second), func(r *judge.Record) { r.Object.Name, r.Got = "", nil }),
				leaves(0, 0), leaves(1, 0)),
		},
		"ExemptByTheRecordOnly": {
			reason:  "The judge reads no lane in a record.",
			records: join(boxes(3), with(released(0, 0), staying, sets(departure, killSwitch)), with(leaves(0, 0), shows(departure, killSwitch)), with(leaves(1, 0), shows(departure, emergency))),
			judged:  2, broken: []string{"2 of 3 machines started to leave within 10s"},
		},

		// The lanes, and which machines count.
		"ASharedWindowEnd": {
			reason:  "The limit of announced ends does not shrink with the fleet.",
			records: four(join(closing(40), each(0, 40, func(i int) judge.Record { return announcedAt(i, -time.Minute, conditions) })...)),
			judged:  4,
		},
		"NotAnnounced": {
			reason:  "Other limits shrink.",
			records: four(boxes(40)),
			judged:  4, broken: tooMany,
		},
		"AnEditDuringASharedWindowEnd": {
			reason:  "The end was announced for another spec.",
			records: join(closing(40), leaves(0, 0), leaves(1, 0), edited(2, second), edited(3, second), leaves(2, 10*second), leaves(3, 10*second)),
			judged:  4, broken: tooMany,
		},
		"DeletedAfterASharedWindowEnd": {
			reason: "Their ScheduledMachines are deleted.",
			records: join(closing(40), leaves(0, 0), leaves(1, 0), announcedAt(2, second, deleting), announcedAt(3, second, deleting),
				leaves(2, 10*second), leaves(3, 10*second)),
			judged: 4, broken: tooMany,
		},
		"BeforeTheEnd": {
			reason:  "The window has not ended.",
			records: join(closing(40), leaves(0, -80*second), leaves(1, -80*second), leaves(2, -70*second), leaves(3, -70*second)),
			judged:  4, broken: tooMany,
		},
		"AnnouncedTooLate": {
			reason:  "The log shows the announcement less than ten minutes before, whatever the status says.",
			records: four(join(boxes(40), each(0, 40, func(i int) judge.Record { return announcedAt(i, -8*time.Minute, announcing) })...)),
			judged:  4, broken: tooMany,
		},
		"AnnouncedAnotherEnd": {
			reason: "The log shows another end until then.",
			records: four(slices.Concat(boxes(40), each(0, 40, func(i int) judge.Record {
				return announcedAt(i, -time.Hour, func(r *judge.Record) { r.Got.NextCleanup = begin.Add(time.Hour) })
			}), each(0, 40, func(i int) judge.Record { return announcedAt(i, -8*time.Minute, announcing) }))),
			judged: 4, broken: tooMany,
		},
		"AnnouncedForAnotherSpec": {
			reason: "The log shows the announcement for another spec until then.",
			records: four(join(closing(40), each(0, 40, func(i int) judge.Record {
				return announcedAt(i, -8*time.Minute, func(r *judge.Record) { r.Got.Generation, r.Got.ObservedGeneration = 2, 2 })
			})...)),
			judged: 4, broken: tooMany,
		},
		"AnnouncedTooLateByTheStatus": {
			reason: "The status says so.",
			records: four(join(boxes(40), each(0, 40, func(i int) judge.Record {
				return announcedAt(i, -time.Hour, func(r *judge.Record) { r.Got.NextCleanupAnnouncedTime = begin.Add(-8 * time.Minute) })
			})...)),
			judged: 4, broken: tooMany,
		},
		"AnnouncedSinceAnUnknownTime": {
			reason: "The status does not say since when.",
			records: four(join(boxes(40), each(0, 40, func(i int) judge.Record {
				return announcedAt(i, -time.Hour, func(r *judge.Record) { r.Got.NextCleanupAnnouncedTime = time.Time{} })
			})...)),
			judged: 4, broken: tooMany,
		},
		"AnnouncedBeforeTheLog": {
			reason:  "The log does not show when the end was announced.",
			records: four(join(boxes(40), each(0, 40, func(i int) judge.Record { return announcedAt(i, -time.Minute, conditions) })...)),
			judged:  4,
		},
		"InfrastructureAfterASharedWindowEnd": {
			reason:  "No end of a window lets the manager delete the infrastructure of a machine that runs.",
			records: join(closing(40), leaves(0, 0), leaves(1, 0), hostGone(2, 10*second), hostGone(3, 10*second)),
			judged:  4, broken: tooMany,
		},
		"OthersDeleteAfterASharedWindowEnd": {
			reason:  "What another client deletes is in the other lane.",
			records: join(closing(40), leaves(0, 0), leaves(1, 0), held(2, 0), held(3, 0), released(2, 10*second), released(3, 10*second)),
			judged:  4, broken: []string{"2 of 38 machines started to leave within 10s"},
		},
		"NeverRan": {
			reason:  "Machines that never had a Node let no other leave.",
			records: join(append(boxes(39), change(boxes(50)[39:], noNode)...), leaves(0, 0), leaves(1, 0)),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"NeverRanAtASharedWindowEnd": {
			reason:  "For announced ends they count.",
			records: join(change(closing(40), noNode), leaves(0, 0), leaves(1, 0)),
			judged:  2,
		},
		"RanByItsScheduledMachine": {
			reason:  "The status of a Machine can be lost.",
			records: join(append(change(boxes(40), noNode), each(0, 40, func(i int) judge.Record { return with(scheduledBox(i, manager, "patch"), hasNode, at(-time.Minute)) })...), leaves(0, 0), leaves(1, 0)),
			judged:  2,
		},
		"StatusLost": {
			reason:  "A Machine that has had a Node counts also when its status is lost.",
			records: join(slices.Concat(boxes(40), change(boxes(40), noNode)), leaves(0, 0), leaves(1, 0)),
			judged:  2,
		},
		"HeldByAnExtension": {
			reason:  "A machine that an extension holds has started to leave.",
			records: join(boxes(40), with(leaves(0, -2*time.Minute), shows(preDrain, "")), leaves(1, 0), leaves(2, second)),
			judged:  3, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"DeletionNotInTheLog": {
			reason:  "A Machine that shows a deletion and no hook has started to leave.",
			records: join(boxes(40), with(leaves(0, -2*time.Minute), func(r *judge.Record) { r.User, r.Verb, r.Subresource = core, "patch", "status" }), leaves(1, 0), leaves(2, second)),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"GoneAndDeletionNotInTheLog": {
			reason:  "A Machine that is gone has left just before.",
			records: join(boxes(40), with(leaves(0, -second), gone, func(r *judge.Record) { r.User, r.Verb = core, "patch" }), leaves(1, 0), leaves(2, second)),
			judged:  2,
		},
		"DeletedMachinesDoNotCount": {
			reason:  "Fewer may leave a fleet that has shrunk.",
			records: join(boxes(40), with(leaves(0, -2*time.Minute), byPerson), leaves(1, 0), leaves(2, second)),
			judged:  2, broken: []string{"2 of 39 machines started to leave within 10s"},
		},
		"DeletedMachinesThatAreHeldCount": {
			reason:  "Another client deleted it, and it runs until the manager admits it.",
			records: join(boxes(40), held(0, -2*time.Minute), leaves(1, 0), leaves(2, second)),
			judged:  2,
		},
	})
}

// announcing makes a record change the announcement.
func announcing(r *judge.Record) { r.Sent.Changes = []string{"status/nextCleanup"} }

func foreign(r *judge.Record)   { delete(r.Got.Labels, "5spot.finos.org/scheduled-machine") }
func unlabeled(r *judge.Record) { r.Got.Labels = nil }
func staying(r *judge.Record)   { r.Got.Deleting = false }

// TestCapNamesAllThatStarted checks that a break lists its evidence.
func TestCapNamesAllThatStarted(t *testing.T) {
	ruling, err := judge.Run(placed(append(boxes(2), leaves(0, 0), leaves(1, time.Second))), judge.Cap(50_000))
	if err != nil {
		t.Fatal(err)
	}
	if len(ruling.Breaks) != 1 || strings.Join(ruling.Breaks[0].IDs, "") != "cd" {
		t.Errorf("got %v", ruling.Breaks)
	}
}

// An attack is a log in which machines leave, and the rules that find it.
type attack struct {
	reason  string
	records []judge.Record
	broken  []string
}

// TestAttacks has logs of attacks on the departure cap. Each is beside a log in which the manager behaves correctly.
func TestAttacks(t *testing.T) {
	const late = 12 * time.Minute
	// paced lets machines leave, some of them every ten seconds.
	paced := func(n, some int, from time.Duration, leaves func(int, time.Duration) judge.Record) []judge.Record {
		return each(0, n, func(i int) judge.Record { return leaves(i, from+time.Duration(i/some)*10*time.Second) })
	}
	// forged is a record that a person writes to a Machine that should stay.
	forged := func(record string) func(int) judge.Record {
		return func(i int) judge.Record {
			uid, obj := box(i)
			return with(by(person, "patch", obj, uid), ofBox, hasNode, shows(preDrain, ""), sets(departure, record), at(0))
		}
	}
	another := `{"lane":"scheduled","reason":"WindowClosed","since":"2026-03-02T16:00:00Z","machineUID":"another","actionID":"a"}`
	// single is the Machine of a Cluster of its own.
	single := func(r *judge.Record) { labeled("cluster.x-k8s.io/cluster-name", r.Object.Name)(r) }
	singles := func(records []judge.Record) []judge.Record {
		for i, r := range records {
			if r.Object.Resource == "machines" {
				records[i] = with(r, single)
			}
		}
		return records
	}
	adopted := func(i int) judge.Record {
		uid, obj := box(i)
		return with(by(person, "patch", obj, uid), hasNode, shows(preDrain, ""), at(0), func(r *judge.Record) { r.Got.Owner = "another" })
	}
	for name, tc := range map[string]attack{
		"A1": {
			reason:  "A fault lasts over the end of the windows of 600 machines. Ten minutes after the end all leave at once.",
			records: slices.Concat(closing(600), each(0, 600, func(i int) judge.Record { return leaves(i, late+time.Duration(i)*15*time.Millisecond) })),
			broken:  []string{"cap", "fleet"},
		},
		"A1Paced": {
			reason:  "The backlog leaves at the same pace as at any end.",
			records: slices.Concat(closing(600), paced(600, 30, late, leaves)),
		},
		"A1TooFast": {
			reason:  "One more every ten seconds is too many.",
			records: slices.Concat(closing(600), paced(600, 31, late, leaves)),
			broken:  []string{"cap", "fleet"},
		},
		"A3Forged": {
			reason:  "A record lets ten wanted machines leave.",
			records: slices.Concat(boxes(10), each(0, 10, forged(closed)), each(0, 10, func(i int) judge.Record { return leaves(i, time.Second) })),
			broken:  []string{"cap", "fleet"},
		},
		"A3Exempt": {
			reason:  "The record says that a kill switch is on.",
			records: slices.Concat(boxes(10), each(0, 10, forged(killSwitch)), each(0, 10, func(i int) judge.Record { return leaves(i, time.Second) })),
			broken:  []string{"cap", "fleet"},
		},
		"A3Moved": {
			reason: "The Machines come from a backup, without hooks and with records of other Machines.",
			records: slices.Concat(each(0, 100, func(i int) judge.Record {
				return with(boxes(i + 1)[i], shows(departure, another), func(r *judge.Record) { delete(r.Got.Annotations, preDrain) })
			}), each(0, 71, func(i int) judge.Record { return leaves(i, time.Second) })),
			broken: []string{"cap", "fleet"},
		},
		"A3InfrastructureOnly": {
			reason:  "The infrastructure goes without a deletion of the Machine.",
			records: slices.Concat(boxes(10), each(0, 10, forged(another)), each(0, 10, func(i int) judge.Record { return hostGone(i, time.Second) })),
			broken:  []string{"cap", "fleet", "steps"},
		},
		"A3Paced": {
			reason:  "The manager takes each as a request, and admits it in its turn.",
			records: slices.Concat(boxes(10), each(0, 10, forged(another)), paced(10, 1, time.Second, leaves)),
		},
		"A4": {
			reason:  "One edit reaches a thousand Clusters of one machine each.",
			records: slices.Concat(singles(boxes(1000)), singles(each(0, 1000, func(i int) judge.Record { return leaves(i, time.Second) }))),
			broken:  []string{"fleet"},
		},
		"A4Paced": {
			reason:  "They are one fleet: fifty of the first thousand leave, then fewer.",
			records: slices.Concat(singles(boxes(1000)), singles(paced(100, 45, time.Second, leaves))),
		},
		"A6": {
			reason:  "Machines have got another controller, and the manager deletes their infrastructure.",
			records: slices.Concat(boxes(10), each(0, 2, adopted), each(0, 2, func(i int) judge.Record { return hostGone(i, time.Second) })),
			broken:  []string{"cap", "fleet", "steps"},
		},
		"A6One": {
			reason:  "The cap admits one, but its Machine should have been deleted first.",
			records: slices.Concat(boxes(10), each(0, 1, adopted), each(0, 1, func(i int) judge.Record { return hostGone(i, time.Second) })),
			broken:  []string{"steps"},
		},
		"A6ByReference": {
			reason: "The infrastructure has lost its owner, too. The Machine refers to it.",
			records: slices.Concat(boxes(10), each(0, 1, func(i int) judge.Record {
				_, obj := box(i)
				return with(adopted(i), func(r *judge.Record) { r.Got.Parts = []judge.Part{{Group: infra.Group, Name: obj.Name}} })
			}), each(0, 1, func(i int) judge.Record {
				return with(hostGone(i, time.Second), func(r *judge.Record) { r.Got.Owner = "" })
			})),
			broken: []string{"steps"},
		},
		"A6InOrder": {
			reason: "After its Machine the infrastructure may go.",
			records: slices.Concat(boxes(10), each(0, 1, adopted),
				each(0, 1, func(i int) judge.Record { return with(leaves(i, time.Second), shows(departure, closed)) }),
				each(0, 1, func(i int) judge.Record { return hostGone(i, time.Second) })),
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A3 deletes Machines without a record of their own: what steps finds in that is not the point here.
			ruling, err := judge.Run(placed(tc.records), judge.Cap(50_000), judge.FleetCap(50_000), infrastructure{judge.Steps()})
			if err != nil {
				t.Fatal(err)
			}
			var broken []string
			for _, v := range ruling.Breaks {
				broken = append(broken, v.Rule)
			}
			slices.Sort(broken)
			if broken = slices.Compact(broken); !slices.Equal(broken, tc.broken) {
				t.Errorf("%s\nbroken rules are %v, not %v; the first is %v", tc.reason, broken, tc.broken, ruling.Breaks[:min(1, len(ruling.Breaks))])
			}
			if ruling.Judged["fleet"] == 0 {
				t.Error("nothing left")
			}
		})
	}
}

// infrastructure has the verdicts of a rule on objects of infrastructure providers.
type infrastructure struct{ judge.Rule }

func (i infrastructure) Judge(r judge.Record) []judge.Verdict { return i.only(i.Rule.Judge(r)) }
func (i infrastructure) End() []judge.Verdict                 { return i.only(i.Rule.End()) }

func (infrastructure) only(verdicts []judge.Verdict) []judge.Verdict {
	return slices.DeleteFunc(verdicts, func(v judge.Verdict) bool { return v.Object.Group != infra.Group })
}
