// SPDX-License-Identifier: Apache-2.0

package judge

import "strings"

// Agent is the rule that a reclaim agent writes only annotations of its own Node, whatever its permissions. Its own
// Node is the one that its token is bound to. Without such a token it is the first Node that its user writes to.
func Agent() Rule { return &agent{} }

type agent struct{ own map[string]string }

func (*agent) Name() string { return "agent" }
func (*agent) Question() string {
	return "Does a reclaim agent write only annotations, and only those of its own Node?"
}

func (*agent) End() []Verdict { return nil }

func (a *agent) Judge(r Record) []Verdict {
	if !r.ByAgent() || r.isReview() {
		return nil
	}
	if !r.Object.isNode() || r.Subresource != "" || r.Verb != "patch" {
		return broken(r, "an agent sent "+r.Verb+" "+r.Object.Resource+" "+r.Subresource, "it should only patch its Node")
	}
	if own := a.node(r); own != r.Object.Name {
		return broken(r, "the agent of Node "+own+" wrote to Node "+r.Object.Name, "it should only write to its own")
	}
	if r.Sent == nil {
		return unread(r)
	}
	for _, part := range r.Sent.Changes {
		if part != "metadata/annotations" {
			return broken(r, "an agent changed "+strings.ReplaceAll(part, "/", "."), "it should only change annotations")
		}
	}
	return kept(r)
}

func (a *agent) node(r Record) string {
	if r.Node != "" {
		return r.Node
	}
	if a.own == nil {
		a.own = map[string]string{}
	}
	who := r.Object.Cluster + "/" + r.User
	if a.own[who] == "" {
		a.own[who] = r.Object.Name
	}
	return a.own[who]
}
