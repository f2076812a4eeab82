// SPDX-License-Identifier: Apache-2.0

// Package clip cleans and truncates text from users and other programs, for conditions, statuses, Events and terminals.
// It removes characters that control a terminal or change the direction of text, and keeps texts within the limits of
// the API.
package clip

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxMessage bounds status.message and the message of a condition, in bytes. The API counts characters, which are
	// never more.
	maxMessage = 10240
	// maxNote bounds the note of an Event in events.k8s.io, in bytes. The API server rejects a longer one, and the
	// Event recorder does not retry.
	maxNote = 1024
)

// Message returns s as text for a condition or a status: cleaned as by Text, and truncated. It may have several lines,
// as Cluster API's messages have.
func Message(s string) string { return To(Text(s), maxMessage) }

// Note returns s as the note of an Event: one line, truncated.
func Note(s string) string { return To(Line(s), maxNote) }

// To truncates s to at most size bytes, at a character boundary. It appends " …" if there is room for it.
func To(s string, size int) string {
	const more = " …"
	switch {
	case len(s) <= size:
		return s
	case size < len(more):
		return ""
	default:
		return strings.ToValidUTF8(s[:size-len(more)], "") + more
	}
}

// Line returns Text(s) on one line, without white space at its ends. Its author thus cannot add lines to a text that
// contains it.
func Line(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(Text(s), "\n", " "))
}

// Text returns s without invisible characters and without characters that change how others are displayed: control
// characters, direction marks, zero-width characters, and invalid UTF-8. It converts line separators to "\n", and a tab
// to a space.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\u2028', r == '\u2029':
			return '\n'
		case r == '\t':
			return ' '
		case Hidden(r):
			return -1
		default:
			return r
		}
	}, s)
}

// Hidden reports whether a character has no glyph of its own, including the end of a line. Format characters (Cf) are
// direction marks, joiners and tags. The two properties at the end cover the other characters that a renderer ignores.
func Hidden(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
