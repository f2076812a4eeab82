// SPDX-License-Identifier: Apache-2.0

// Package clip answers one question: what of a text that others wrote is shown, and
// how much of it fits into the API? Programs and people may write a lot, and what
// steers a terminal or turns the order of letters around. It does not know what a
// text means.
package clip

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxMessage is the bound of status.message and of a condition's message, in
	// bytes; the API counts characters, which are never more.
	maxMessage = 10240
	// maxNote is the bound of an event's note in events.k8s.io, in bytes. The API
	// server refuses an event with a longer one, and nobody tries again.
	maxNote = 1024
)

// Message is what a condition or a status may say: bounded, and without what Text
// drops. It may have several lines, as Cluster API's own messages have.
func Message(s string) string { return To(Text(s), maxMessage) }

// Note is what an event may say: one line, bounded.
func Note(s string) string { return To(Line(s), maxNote) }

// To cuts s to at most size bytes, between characters. It shows that something is
// missing, unless size leaves no room for that.
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

// Line is s on one line, without what Text drops and without white space at its
// ends. Nobody can add lines of their own to what it is a part of.
func Line(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(Text(s), "\n", " "))
}

// Text is s without characters that are not seen or change how others are seen:
// control characters, marks of the direction of writing, characters without width,
// and what is no UTF-8. What ends a line is a new line, and a tab is a space.
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

// Hidden reports whether a character is not seen by itself, such as the end of a
// line. Format characters are the marks of direction, joiners and tags; the two
// properties have the rest that a renderer ignores.
func Hidden(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
