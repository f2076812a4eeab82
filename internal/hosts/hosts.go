// SPDX-License-Identifier: Apache-2.0

// Package hosts decides which of several objects that name the same host may use it. It is pure: it imports no
// Kubernetes package, and gets the names of a host as input.
package hosts

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// The kinds of IDs.
const (
	// Address is the address at which a provider reaches the host.
	Address = "address"
	// ProviderID is its ID at the provider.
	ProviderID = "providerID"
	// NodeName is the name of its Node.
	NodeName = "nodeName"
	// MachineID is the machine ID of its operating system. Copying an image copies it, so it proves nothing: an
	// equal machine ID is only a suspicion.
	MachineID = "machineID"
)

// An ID is one name of a host. Equal IDs name the same host. It has the fields of v1alpha1.HostName.
type ID struct {
	// Kind is one of the kinds above. Scope is where Value is unique, empty for everywhere.
	Kind, Scope, Value string
}

// String returns the ID without its scope, for messages.
func (id ID) String() string { return id.Kind + " " + id.Value }

// Key returns a unique string for the ID.
func (id ID) Key() string { return strings.Join([]string{id.Kind, id.Scope, id.Value}, "|") }

func (id ID) proof() bool { return id.Kind != MachineID }

// A Claim is what one object declares about its host, and what is known about it.
type Claim struct {
	// Namespace and Name identify the claim.
	Namespace, Name string
	// Wants are the names of the host that the object requests. A claim that is only compared with mine needs just the
	// names that both have.
	Wants []ID
	// Has are the names of the host that it uses or is about to use. It is empty if it uses none.
	Has []ID
	// MadeAt is when it began to use the host, zero if unknown.
	MadeAt time.Time
	// Since is when it began to name the host. Zero means that this is not recorded yet. It counts as later
	// than every recorded instant.
	Since time.Time
	// Created is when the object was created.
	Created time.Time
	// Request identifies the request by which the host's owner took the machine back through this object. It is empty
	// if there is none, or if the owner has lent the machine again.
	Request string
}

// Standing is the result for a claim among other claims.
type Standing int

// The standings, in the order of severity.
const (
	// Alone means that no other claim names the host.
	Alone Standing = iota
	// Suspected means that another claim may name the same host. Both continue.
	Suspected
	// First means that others name the host, and that this claim may use it.
	First
	// Second means that another claim has precedence, and that nothing is created.
	Second
	// Withheld means that the host's owner has it, according to another claim in the same namespace.
	Withheld
)

// A Verdict is the standing of a claim and its cause.
type Verdict struct {
	Standing Standing
	// With is the other claim that comes first. ID is the name of the host that both have.
	With Claim
	ID   ID
	// More reports that there are further claims.
	More bool
}

// Judge returns the standing of mine among others, which must not include mine. Of the claims that name one
// host, at most one is First or already uses it.
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
	case mine.WithheldBy(o):
		return Withheld
	case o.Before(mine):
		return Second
	default:
		return First
	}
}

// WithheldBy reports whether the host's owner has the host according to o. c must not lend it either. Claims of
// another namespace do not count: a user with write access there could otherwise remove a machine here.
func (c Claim) WithheldBy(o Claim) bool {
	id, shared := c.shares(o)
	return shared && id.proof() && o.Request != "" && o.Namespace == c.Namespace
}

// Before reports whether c has precedence over o. A claim that uses the host precedes one that only names it.
// Otherwise the earlier one has precedence. The order is total.
func (c Claim) Before(o Claim) bool { return c.compare(o, c.holds(o), o.holds(c)) < 0 }

// compare orders c and o. holds and held report whether c and o use the host.
func (c Claim) compare(o Claim, holds, held bool) int {
	made := 0
	switch {
	case holds && !held:
		return -1
	case held && !holds:
		return 1
	case holds:
		made = compareTimes(c.MadeAt, o.MadeAt)
	}
	return cmp.Or(made, compareTimes(c.Since, o.Since), c.Created.Compare(o.Created),
		cmp.Compare(c.Namespace, o.Namespace), cmp.Compare(c.Name, o.Name))
}

// compareTimes orders times. Zero is last.
func compareTimes(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return a.Compare(b)
	case a.IsZero():
		return 1
	default:
		return -1
	}
}

// maxAffected is the maximum number of other claims that a change enqueues. It covers a host that people name twice by
// mistake. Of a thousand copies, only the first ones are enqueued.
const maxAffected = 8

// MaxWithheld is the maximum for a change of the owner's request, which concerns every claim. A claim that is created
// later creates nothing, and sees the request in its own reconcile.
const MaxWithheld = 64

// Affected returns the claims among others that a change of mine affects, in the order of precedence. All
// others must name the host by id. It returns the first one, and all over which mine has precedence. If the
// owner took the machine back through mine, it also returns the others in its namespace. Their number is limited, so
// that the cost of one change is bounded.
func Affected(mine Claim, id ID, others []Claim) []Claim {
	others = slices.Clone(others)
	slices.SortFunc(others, func(a, b Claim) int { return a.compare(b, slices.Contains(a.Has, id), slices.Contains(b.Has, id)) })
	var affected []Claim
	most := maxAffected
	if mine.Request != "" {
		most = MaxWithheld
	}
	for i, o := range others {
		if len(affected) < most && (i == 0 || o.WithheldBy(mine) || mine.Before(o)) {
			affected = append(affected, o)
		}
	}
	return affected
}

// After returns the instant to record for Since of mine: now, but after every recorded instant of the others.
// Another clock may have written these, and may be ahead.
func After(mine Claim, others []Claim, now time.Time) time.Time {
	since := now.Truncate(time.Second)
	for _, o := range others {
		if id, shared := mine.shares(o); shared && id.proof() && !o.Since.Before(since) {
			since = o.Since.Truncate(time.Second).Add(time.Second)
		}
	}
	return since
}

// IDs returns all names of the host in the claim.
func (c Claim) IDs() []ID {
	var ids []ID
	for _, id := range slices.Concat(c.Wants, c.Has) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// holds reports whether c uses the host that o names.
func (c Claim) holds(o Claim) bool {
	return slices.ContainsFunc(c.Has, func(id ID) bool { return id.proof() && o.names(id) })
}

func (c Claim) names(id ID) bool { return slices.Contains(c.Wants, id) || slices.Contains(c.Has, id) }

// shares returns a name of the host that both claims have. It prefers a name that is a proof.
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
