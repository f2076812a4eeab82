// SPDX-License-Identifier: Apache-2.0

package installation

import "github.com/finos/cluster-api-addon-provider-5spot/internal/installed"

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
	Presence installed.Presence
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
	case !f.Wanted && f.Presence == installed.Ours && !f.Shared:
		return Uninstall
	case !f.Wanted:
		return Keep
	case f.Presence == installed.Absent:
		return Install
	case f.Presence == installed.Foreign && f.Shared:
		return Keep
	case f.Presence == installed.Foreign:
		return Refuse
	case f.Presence == installed.Elsewhere && f.InstalledBefore, f.AsLeft:
		return Keep
	default:
		return Repair
	}
}
