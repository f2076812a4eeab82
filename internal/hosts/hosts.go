// SPDX-License-Identifier: Apache-2.0

// Package hosts answers one question: who of several that name the same host may use
// it? It knows nothing about Kubernetes, nor how a host comes by its names.
package hosts

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Kind is what an ID says of a host.
type Kind string

// The kinds of IDs.
const (
	// Address is where a provider reaches the host.
	Address Kind = "address"
	// ProviderID is what a provider calls it.
	ProviderID Kind = "providerID"
	// NodeName is the name of its Node.
	NodeName Kind = "nodeName"
	// MachineID is what its operating system calls it. It is copied with an image, so
	// that it proves nothing: two that have the same are only suspected.
	MachineID Kind = "machineID"
)

// An ID is one name of a host. Equal ones are of the same host.
type ID struct {
	Kind Kind
	// Value is the name, and Scope where it means one host; empty is everywhere.
	Value, Scope string
}

// String is the ID for people, without its scope.
func (id ID) String() string { return string(id.Kind) + " " + id.Value }

// Key tells IDs apart.
func (id ID) Key() string { return strings.Join([]string{string(id.Kind), id.Scope, id.Value}, "|") }

func (id ID) proof() bool { return id.Kind != MachineID }

// A Claim is what one object says of its host, and what it has of it.
type Claim struct {
	// Namespace and Name tell claims apart.
	Namespace, Name string
	// Wants are what the object calls the host that it is to have.
	Wants []ID
	// Has are what is known of the host that it uses, or is about to; empty while it
	// uses none.
	Has []ID
	// MadeAt is when it began to use it, zero while that is not known.
	MadeAt time.Time
	// Since is when it began to name the host; zero where nobody has written that down
	// yet, which was after all others.
	Since time.Time
	// Created is when the object was made.
	Created time.Time
	// Owner says that the host's owner asked this object for it, and has not lent it
	// again.
	Owner bool
}

// Standing is where a claim stands among others.
type Standing int

// The standings, in the order of what they mean for the object.
const (
	// Alone means that nobody else names the host.
	Alone Standing = iota
	// Suspected means that somebody else may name it. Both go on.
	Suspected
	// First means that others name it, and that it may be used.
	First
	// Second means that somebody else comes first, and that nothing is made.
	Second
	// Withheld means that the host's owner has it, as another claim in the same
	// namespace knows.
	Withheld
)

// A Verdict is where a claim stands, and because of whom.
type Verdict struct {
	Standing Standing
	// With is the foremost of the others, and ID what both say of the host.
	With Claim
	ID   ID
	// More says that there are others besides.
	More bool
}

// Judge says where mine stands among others, of which mine is none. Of those that name
// one host at most one is First, or uses it already.
func Judge(mine Claim, others []Claim) Verdict {
	var v Verdict
	for _, o := range others {
		id, shared := mine.shares(o)
		if !shared {
			continue
		}
		standing := standing(mine, o, id)
		switch {
		case standing > v.Standing, standing == v.Standing && o.Before(v.With):
			v = Verdict{Standing: standing, With: o, ID: id, More: v.Standing != Alone}
		default:
			v.More = true
		}
	}
	return v
}

func standing(mine, o Claim, id ID) Standing {
	switch {
	case !id.proof():
		return Suspected
	case o.Owner && o.Namespace == mine.Namespace:
		return Withheld
	case o.Before(mine):
		return Second
	default:
		return First
	}
}

// Asked returns the claims among others whose owner has the host that mine names, too:
// mine must not lend it either. Those of another namespace do not count: whoever may
// write there could take a machine away here.
func Asked(mine Claim, others []Claim) []Claim {
	var asked []Claim
	for _, o := range others {
		if id, shared := mine.shares(o); shared && id.proof() && o.Owner && o.Namespace == mine.Namespace {
			asked = append(asked, o)
		}
	}
	return asked
}

// Before reports whether c comes before o: who uses the host before who only names it,
// and then who came first in time. Between any two one comes before the other.
func (c Claim) Before(o Claim) bool {
	holds, held := c.holds(o), o.holds(c)
	switch {
	case holds != held:
		return holds
	case holds && !c.MadeAt.Equal(o.MadeAt):
		return earlier(c.MadeAt, o.MadeAt)
	}
	return c.named(o) < 0
}

// Few is how many others of one ID a change wakes: of those that people name twice by
// mistake all, and of a thousand copies the foremost, one of which comes next.
const Few = 8

// Many is the same for a change of what an owner said, which is passed on to all. Who comes
// later makes nothing, and sees it when it is looked at.
const Many = 64

// Concerned returns those of others, which all name the host by id, to whom it matters that
// mine changed, the foremost first: all that mine comes before, of the rest the foremost,
// which says that it is not alone; of its namespace everybody, if the owner asked mine for
// the host. Never more than a few: what one change costs does not grow with the others.
func Concerned(mine Claim, id ID, others []Claim) []Claim {
	others = slices.Clone(others)
	slices.SortFunc(others, func(a, b Claim) int { return a.compare(b, id) })
	var concerned []Claim
	most := Few
	if mine.Owner {
		most = Many
	}
	for i, o := range others {
		told := mine.Owner && o.Namespace == mine.Namespace
		if len(concerned) < most && (i == 0 || told || mine.Before(o)) {
			concerned = append(concerned, o)
		}
	}
	return concerned
}

// compare is the order of those that name the host by id.
func (c Claim) compare(o Claim, id ID) int {
	switch uses := slices.Contains(c.Has, id); {
	case uses != slices.Contains(o.Has, id):
		return before(uses)
	case uses && !c.MadeAt.Equal(o.MadeAt):
		return before(earlier(c.MadeAt, o.MadeAt))
	default:
		return c.named(o)
	}
}

func before(yes bool) int {
	if yes {
		return -1
	}
	return 1
}

// named is the order in which the two began to name the host.
func (c Claim) named(o Claim) int {
	if !c.Since.Equal(o.Since) {
		return before(earlier(c.Since, o.Since))
	}
	return cmp.Or(c.Created.Compare(o.Created), cmp.Compare(c.Namespace, o.Namespace), cmp.Compare(c.Name, o.Name))
}

// After returns when to write down that mine began to name its host, for one that nobody
// has written down yet: now, and after all others that are written down. Creation is dated
// by another clock, which may be ahead of ours.
func After(mine Claim, others []Claim, now time.Time) time.Time {
	since := now.Truncate(time.Second)
	for _, o := range others {
		if id, shared := mine.shares(o); shared && id.proof() && !o.Since.Before(since) {
			since = o.Since.Truncate(time.Second).Add(time.Second)
		}
	}
	return since
}

// IDs are all that the claim calls its host.
func (c Claim) IDs() []ID {
	var ids []ID
	for _, id := range slices.Concat(c.Wants, c.Has) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// earlier reports whether a comes before b; zero comes last.
func earlier(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// holds reports whether c uses the host that o names.
func (c Claim) holds(o Claim) bool {
	return slices.ContainsFunc(c.Has, func(id ID) bool { return id.proof() && o.names(id) })
}

func (c Claim) names(id ID) bool { return slices.Contains(c.Wants, id) || slices.Contains(c.Has, id) }

// shares returns what both say of the host: a proof, if there is one.
func (c Claim) shares(o Claim) (shared ID, ok bool) {
	for _, id := range slices.Concat(c.Wants, c.Has) {
		if !o.names(id) {
			continue
		}
		if id.proof() {
			return id, true
		}
		shared, ok = id, true
	}
	return shared, ok
}
