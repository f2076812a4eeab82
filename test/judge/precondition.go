// SPDX-License-Identifier: Apache-2.0

package judge

// Precondition is the rule that each write of the manager to a Machine, a Node, a bootstrap config or an infrastructure
// machine has a UID or a resourceVersion. Otherwise it could change a later object with the same name. Creations are
// exempt, because they cannot have one.
func Precondition() Rule { return precondition{} }

type precondition struct{}

func (precondition) Name() string { return "precondition" }
func (precondition) Question() string {
	return "Does each write to an object of a machine say by UID or resourceVersion which object it is for?"
}

func (precondition) End() []Verdict { return nil }

func (precondition) Judge(r Record) []Verdict {
	switch {
	case !r.ByManager() || !r.Accepted() || !r.Object.ofLifecycle() || r.creates():
		return nil
	case r.Sent == nil:
		return unread(r)
	case r.Sent.UID == "" && r.Sent.ResourceVersion == "":
		return broken(r, r.Verb+" names the object by name only", "it should have had a UID or a resourceVersion")
	default:
		return kept(r)
	}
}
