// SPDX-License-Identifier: Apache-2.0

package judge

// Precondition is that each write of the manager to a Machine, a Node, a bootstrap config or
// an infrastructure machine says which object it is for, by UID or resourceVersion: another
// object of the same name must not be hit. What creates an object cannot say so.
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
