// SPDX-License-Identifier: Apache-2.0

package nodesync

// Presence is what one look shows of an object of a name that we use.
type Presence string

// The presences; the zero value is Absent.
const (
	// Absent means that there is none.
	Absent Presence = ""
	// Foreign means that somebody else made it.
	Foreign Presence = "Foreign"
	// Elsewhere means that we made it, for another Cluster of the same API server.
	Elsewhere Presence = "Elsewhere"
	// Ours means that we made it for this Cluster.
	Ours Presence = "Ours"
)

// Verdict is what becomes of one object of the installation.
type Verdict string

// The verdicts.
const (
	// Keep leaves it as it is.
	Keep Verdict = "Keep"
	// Install makes it.
	Install Verdict = "Install"
	// Repair makes it again what it should be.
	Repair Verdict = "Repair"
	// Uninstall takes it away.
	Uninstall Verdict = "Uninstall"
	// Refuse leaves it, and what comes after it undone.
	Refuse Verdict = "Refuse"
)

// InstallFacts are what one look at an object of the installation shows.
type InstallFacts struct {
	// Wanted says that the Cluster has a ScheduledMachine that asks for it.
	Wanted bool
	// Shared says that others live in it too: the Namespace, and definitions of kinds.
	Shared bool
	// Presence is whose it is.
	Presence Presence
	// Leaving says that it is being deleted.
	Leaving bool
	// InstalledBefore reports that this process has written the object, or verified it.
	InstalledBefore bool
	// AsLeft says that it has not changed since.
	AsLeft bool
}

// DecideInstall says what becomes of one object of the installation. What is shared
// stays when the rest goes: others may have put something into it, such as policies. Another
// Cluster's installation is taken over once, which is what restoring a management
// cluster under another name needs, and never fought over.
func DecideInstall(f InstallFacts) Verdict {
	switch {
	case f.Leaving:
		return Keep // Its going wakes us.
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
	// MakeConfigMap makes the ConfigMap, MendConfigMap corrects it.
	MakeConfigMap Write = "MakeConfigMap"
	MendConfigMap Write = "MendConfigMap"
	// AddLabel opts the Node in to the DaemonSet, DropLabel out.
	AddLabel  Write = "AddLabel"
	DropLabel Write = "DropLabel"
	// DeleteConfigMap takes the ConfigMap away.
	DeleteConfigMap Write = "DeleteConfigMap"
	// RefuseConfigMap leaves somebody else's of that name, and the Node as it is.
	RefuseConfigMap Write = "RefuseConfigMap"
)

// NodeFacts are what one look at a Node and its agent shows.
type NodeFacts struct {
	// Wanted says that its ScheduledMachine has programs to look for, and that
	// neither of them leaves.
	Wanted bool
	// Held says that nothing may be touched: an emergency, or a pause.
	Held bool
	// Exists says that there is a Node, and Labelled that it is opted in.
	Exists, Labelled bool
	// ConfigMap is whose it is, and Current that it says what it should.
	ConfigMap Presence
	Current   bool
}

// DecideNode returns the writes, in their order. The ConfigMap is the record that we
// opted the Node in: it comes before the label and goes after it, so that a crash
// between the two loses nothing, and a label that somebody else put there stays.
func DecideNode(f NodeFacts) []Write {
	var writes []Write
	switch {
	case f.Held:
	case f.Wanted && !f.Exists: // Its coming wakes us.
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
