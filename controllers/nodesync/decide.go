// SPDX-License-Identifier: Apache-2.0

package nodesync

// Presence is the owner of an object that has a name of the installation.
type Presence string

// The presences; the zero value is Absent.
const (
	// Absent means that there is no such object.
	Absent Presence = ""
	// Foreign means that another writer created it.
	Foreign Presence = "Foreign"
	// Elsewhere means that 5-Spot created it, for another Cluster with the same API server.
	Elsewhere Presence = "Elsewhere"
	// Ours means that 5-Spot created it for this Cluster.
	Ours Presence = "Ours"
)

// Verdict is the decision about one object of the installation.
type Verdict string

// The verdicts.
const (
	// Keep makes no change.
	Keep Verdict = "Keep"
	// Install creates the object.
	Install Verdict = "Install"
	// Repair restores the object to the manifest.
	Repair Verdict = "Repair"
	// Uninstall deletes the object.
	Uninstall Verdict = "Uninstall"
	// Refuse makes no change, and skips all later objects of the installation.
	Refuse Verdict = "Refuse"
)

// InstallFacts is the observed state of one object of the installation.
type InstallFacts struct {
	// Wanted reports that a ScheduledMachine of the Cluster needs the object.
	Wanted bool
	// Shared reports that other writers' objects depend on it: the Namespace, and CustomResourceDefinitions.
	Shared bool
	// Presence is the owner of the object.
	Presence Presence
	// Leaving reports that the object is being deleted.
	Leaving bool
	// InstalledBefore reports that this process has written the object, or verified it.
	InstalledBefore bool
	// AsLeft reports that the object has not changed since then.
	AsLeft bool
}

// DecideInstall returns the decision for one object of the installation. A shared object is never deleted, because
// others may have added objects to it, such as policies. An object of another Cluster is taken over once, for a
// management cluster that was restored under another name. A second takeover would lead to an endless fight.
func DecideInstall(f InstallFacts) Verdict {
	switch {
	case f.Leaving:
		return Keep // Its deletion triggers a reconcile.
	case !f.Wanted && f.Presence == Ours && !f.Shared:
		return Uninstall
	case !f.Wanted:
		return Keep
	case f.Presence == Absent:
		return Install
	case f.Presence == Foreign && f.Shared:
		return Keep
	case f.Presence == Foreign:
		return Refuse
	case f.Presence == Elsewhere && f.InstalledBefore, f.AsLeft:
		return Keep
	default:
		return Repair
	}
}

// Write is one write for the agent of one Node.
type Write string

// The writes.
const (
	// MakeConfigMap creates the ConfigMap, MendConfigMap corrects it.
	MakeConfigMap Write = "MakeConfigMap"
	MendConfigMap Write = "MendConfigMap"
	// AddLabel adds the label that selects the Node for the DaemonSet, DropLabel removes it.
	AddLabel  Write = "AddLabel"
	DropLabel Write = "DropLabel"
	// DeleteConfigMap deletes the ConfigMap.
	DeleteConfigMap Write = "DeleteConfigMap"
	// RefuseConfigMap reports a ConfigMap of another writer with that name. Node and ConfigMap do not change.
	RefuseConfigMap Write = "RefuseConfigMap"
)

// NodeFacts is the observed state of a Node and its agent.
type NodeFacts struct {
	// Wanted reports that an agent must run on the Node. See node.wantsAgent.
	Wanted bool
	// Held reports that no write is allowed, because of a reclaim or a pause.
	Held bool
	// Exists reports that the Node exists, Labelled that it has the agent's label.
	Exists, Labelled bool
	// ConfigMap is the owner of the ConfigMap, Current that its content is correct.
	ConfigMap Presence
	Current   bool
}

// DecideNode returns the writes in their order. The ConfigMap is the record that 5-Spot labelled the Node. It is
// created before the label and deleted after it, so that a crash between the writes loses nothing. A label that another
// writer added stays.
func DecideNode(f NodeFacts) []Write {
	var writes []Write
	switch {
	case f.Held:
	case f.Wanted && !f.Exists: // The creation of the Node triggers a reconcile.
	case f.Wanted && f.ConfigMap == Foreign:
		writes = append(writes, RefuseConfigMap)
	case f.Wanted:
		if f.ConfigMap == Absent {
			writes = append(writes, MakeConfigMap)
		} else if !f.Current {
			writes = append(writes, MendConfigMap)
		}
		if !f.Labelled {
			writes = append(writes, AddLabel)
		}
	case f.ConfigMap == Ours:
		if f.Labelled {
			writes = append(writes, DropLabel)
		}
		writes = append(writes, DeleteConfigMap)
	}
	return writes
}
